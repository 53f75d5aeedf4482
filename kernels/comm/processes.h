// Forks the ranks of a world, for tests and benchmarks.
#ifndef WEFT_KERNELS_COMM_PROCESSES_H_
#define WEFT_KERNELS_COMM_PROCESSES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace weft::comm {

// How a forked rank talks to the others through its parent.
class Mailbox {
 public:
  Mailbox(int fd, int ranks) : fd_(fd), ranks_(ranks) {}

  // Gives `mine`, and returns what all ranks gave, by rank. Every rank that is
  // alive calls it equally often; a rank that has died gives "".
  std::vector<std::string> Exchange(const std::string& mine);

 private:
  const int fd_;
  const int ranks_;
};

struct ProcessResult {
  bool was_killed = false;  // by a signal, or did not end in time
  bool passed = false;
  std::string message;  // what the body returned, unless it is OK
};

// Runs `body` in `ranks` forked processes, which end with it. Processes that
// take longer than `limit` are killed.
//
// Requires: the calling process has one thread and has used neither UCX nor
// CUDA.
std::vector<ProcessResult> RunProcesses(
    int ranks, absl::Duration limit,
    const std::function<absl::Status(int rank, Mailbox& mailbox)>& body);

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_PROCESSES_H_
