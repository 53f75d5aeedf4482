#include "kernels/comm/cuda/watchdog.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::comm::cuda {
namespace {

// How often it looks; errors are found so much later.
constexpr int kIntervalMs = 10;

}  // namespace

absl::StatusOr<std::unique_ptr<Watchdog>> Watchdog::Create(Options options) {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("transport ", options.transport,
                     ": the system gave no eventfd (errno ", errno, ")"));
  }
  return absl::WrapUnique(new Watchdog(std::move(options), fd));
}

Watchdog::Watchdog(Options options, int wake_fd)
    : options_(std::move(options)),
      wake_fd_(wake_fd),
      thread_([this] { Run(); }) {
  ::pthread_setname_np(thread_.native_handle(), "weft-watchdog");
}

Watchdog::~Watchdog() {
  Close();
  ::close(wake_fd_);
}

void Watchdog::Close() {
  (void)Keep(absl::FailedPreconditionError("the transport has been closed"));
  stopping_ = true;
  Wake();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::Add(Watched* watched) {
  MutexLock lock(&watched_mu_);
  watched_.push_back(watched);
}

void Watchdog::Remove(Watched* watched) {
  MutexLock lock(&watched_mu_);
  watched_.erase(std::remove(watched_.begin(), watched_.end(), watched),
                 watched_.end());
}

absl::Status Watchdog::status() const {
  MutexLock lock(&error_mu_);
  return error_;
}

bool Watchdog::IsCancelled() const {
  return options_.cancellation != nullptr && options_.cancellation->cancelled();
}

absl::Status Watchdog::CheckUsable(absl::string_view group,
                                   const CollectiveId& id) {
  if (failed()) {
    return Annotate(status(), absl::StrCat(Describe(group, id, options_.rank),
                                           ": transport ", options_.transport,
                                           " has failed before"));
  }
  if (!IsCancelled()) return absl::OkStatus();
  const absl::Status cancelled = CancelledError(
      group, id, options_.rank, options_.cancellation->reason(), {});
  Fail(cancelled);
  return cancelled;
}

absl::Status Watchdog::CheckWait(SteadyTime start,
                                 absl::string_view what) const {
  if (failed()) return status();
  if (IsCancelled()) {
    return absl::CancelledError(absl::StrCat(
        what, ": cancelled (", options_.cancellation->reason().message(), ")"));
  }
  if (std::chrono::steady_clock::now() - start <
      absl::ToChronoNanoseconds(options_.deadline)) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(absl::StrCat(
      what, ": not done within ", absl::FormatDuration(options_.deadline)));
}

bool Watchdog::Keep(const absl::Status& error) {
  MutexLock lock(&error_mu_);
  const bool is_first = error_.ok();
  if (is_first) error_ = error;
  failed_.store(true, std::memory_order_release);
  return is_first;
}

void Watchdog::Fail(const absl::Status& error) {
  if (!Keep(error)) return;
  options_.device->Fail(error);
  Wake();
}

void Watchdog::Wake() {
  const uint64_t one = 1;
  // Cannot fail: the counter is far from full and the descriptor is ours.
  [[maybe_unused]] const auto written = ::write(wake_fd_, &one, sizeof(one));
}

void Watchdog::Run() {
  while (!stopping_) {
    LookAtAll();
    Sleep();
  }
}

void Watchdog::Sleep() const {
  // What has fired stays readable; it is looked at once.
  const bool by_token =
      options_.cancellation != nullptr && !failed() && !IsCancelled();
  pollfd fds[2] = {
      {wake_fd_, POLLIN, 0},
      {by_token ? options_.cancellation->event_fd() : -1, POLLIN, 0},
  };
  ::poll(fds, 2, kIntervalMs);
  uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(wake_fd_, &count, sizeof(count));
}

void Watchdog::LookAtAll() {
  const SteadyTime now = std::chrono::steady_clock::now();
  MutexLock lock(&watched_mu_);
  for (Watched* watched : watched_) {
    const absl::Status found =
        failed() ? absl::OkStatus() : Look(*watched, now);
    if (!found.ok()) Fail(found);
  }
  if (!failed() && IsCancelled()) {
    Fail(absl::CancelledError(absl::StrCat(
        "transport ", options_.transport, " on rank ", options_.rank,
        ": cancelled (", options_.cancellation->reason().message(), ")")));
  }
  if (!failed() || stopping_) return;
  for (Watched* watched : watched_) watched->Abort();
}

absl::Status Watchdog::Look(Watched& watched, SteadyTime now) {
  const std::optional<PendingCollective> oldest = watched.Oldest(now);
  const absl::Status transport = watched.CheckTransport();
  if (!oldest.has_value()) {
    return Annotate(transport, absl::StrCat("group ", watched.group(),
                                            " on rank ", options_.rank));
  }
  if (!transport.ok()) {
    return Annotate(transport,
                    Describe(watched.group(), oldest->id, options_.rank));
  }
  if (IsCancelled()) {
    return CancelledError(watched.group(), oldest->id, options_.rank,
                          options_.cancellation->reason(),
                          watched.MissingRanks());
  }
  if (now - oldest->since < absl::ToChronoNanoseconds(options_.deadline)) {
    return absl::OkStatus();
  }
  return DeadlineError(watched.group(), oldest->id, options_.rank,
                       options_.deadline, watched.MissingRanks());
}

}  // namespace weft::comm::cuda
