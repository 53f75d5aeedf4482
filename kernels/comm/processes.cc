#include "kernels/comm/processes.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/time/clock.h"

namespace weft::comm {
namespace {

// Both return false when the other side is gone.
bool WriteAll(int fd, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (done <= 0) return false;
    at += done;
    bytes -= done;
  }
  return true;
}

bool ReadAll(int fd, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::read(fd, at, bytes);
    if (done <= 0) return false;
    at += done;
    bytes -= done;
  }
  return true;
}

bool WriteString(int fd, const std::string& text) {
  const uint64_t length = text.size();
  return WriteAll(fd, &length, sizeof(length)) &&
         WriteAll(fd, text.data(), text.size());
}

bool ReadString(int fd, std::string* text) {
  uint64_t length = 0;
  if (!ReadAll(fd, &length, sizeof(length))) return false;
  text->resize(length);
  return ReadAll(fd, text->data(), length);
}

// A message of a rank: of an exchange, or its last.
constexpr char kExchange = 'x';
constexpr char kResult = 'r';

struct Rank {
  pid_t pid = -1;
  int fd = -1;
  bool is_open = true;
  bool has_message = false;
  std::string message;
  ProcessResult result;
};

[[noreturn]] void RunChild(
    int rank, int ranks, int fd,
    const std::function<absl::Status(int, Mailbox&)>& body) {
  Mailbox mailbox(fd, ranks);
  const absl::Status status = body(rank, mailbox);
  WriteString(fd, kResult + (status.ok() ? std::string() : status.ToString()));
  ::_exit(0);
}

std::vector<Rank> ForkAll(
    int ranks, const std::function<absl::Status(int, Mailbox&)>& body) {
  std::vector<Rank> all(ranks);
  for (int r = 0; r < ranks; ++r) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) std::abort();
    all[r].pid = ::fork();
    if (all[r].pid < 0) std::abort();
    if (all[r].pid == 0) {
      for (int other = 0; other < r; ++other) ::close(all[other].fd);
      ::close(ends[0]);
      RunChild(r, ranks, ends[1], body);
    }
    ::close(ends[1]);
    all[r].fd = ends[0];
  }
  return all;
}

void ReadOne(Rank* rank) {
  std::string message;
  if (!ReadString(rank->fd, &message)) {
    rank->is_open = false;
    return;
  }
  if (message[0] == kResult) {
    rank->result.message = message.substr(1);
    rank->result.passed = rank->result.message.empty();
    rank->is_open = false;
    return;
  }
  rank->message = message.substr(1);
  rank->has_message = true;
}

// Answers an exchange once all that are alive have given their part.
void AnswerIfAllGave(std::vector<Rank>* all) {
  for (const Rank& rank : *all) {
    if (rank.is_open && !rank.has_message) return;
  }
  for (const Rank& to : *all) {
    if (!to.is_open) continue;
    for (const Rank& from : *all) WriteString(to.fd, from.message);
  }
  for (Rank& rank : *all) {
    rank.has_message = false;
    rank.message.clear();
  }
}

// Relays messages until all ranks have ended. Returns false at the deadline.
bool Relay(std::vector<Rank>* all, absl::Time deadline) {
  while (true) {
    std::vector<pollfd> fds;
    std::vector<Rank*> open;
    for (Rank& rank : *all) {
      if (!rank.is_open || rank.has_message) continue;
      fds.push_back({rank.fd, POLLIN, 0});
      open.push_back(&rank);
    }
    if (fds.empty()) return true;
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left_ms <= 0) return false;
    ::poll(fds.data(), fds.size(), static_cast<int>(left_ms));
    for (size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].revents != 0) ReadOne(open[i]);
    }
    AnswerIfAllGave(all);
  }
}

}  // namespace

std::vector<std::string> Mailbox::Exchange(const std::string& mine) {
  std::vector<std::string> all(ranks_);
  bool is_alive = WriteString(fd_, kExchange + mine);
  for (std::string& one : all) is_alive = is_alive && ReadString(fd_, &one);
  if (!is_alive) ::_exit(1);  // the parent is gone
  return all;
}

std::vector<ProcessResult> RunProcesses(
    int ranks, absl::Duration limit,
    const std::function<absl::Status(int rank, Mailbox& mailbox)>& body) {
  std::vector<Rank> all = ForkAll(ranks, body);
  const bool in_time = Relay(&all, absl::Now() + limit);
  std::vector<ProcessResult> results;
  for (Rank& rank : all) {
    if (!in_time) ::kill(rank.pid, SIGKILL);
    int status = 0;
    ::waitpid(rank.pid, &status, 0);
    ::close(rank.fd);
    rank.result.was_killed = !WIFEXITED(status);
    if (rank.result.was_killed && rank.result.message.empty()) {
      rank.result.message = in_time ? "killed" : "did not end in time";
    }
    results.push_back(std::move(rank.result));
  }
  return results;
}

}  // namespace weft::comm
