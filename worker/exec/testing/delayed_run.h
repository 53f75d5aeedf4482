// What a program does under random delays of its ops: the oracle of harm.
#ifndef WEFT_WORKER_EXEC_TESTING_DELAYED_RUN_H_
#define WEFT_WORKER_EXEC_TESTING_DELAYED_RUN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "schedule/program.h"
#include "weft/v1/job.pb.h"

namespace weft::exec::testing {

// Bits of a run: losses, those of routers among them, and norms of each step on
// every rank, then the weights and gradients after the last.
struct RunBits {
  std::vector<uint64_t> steps;
  uint64_t weights = 0;
};

struct DelayedRun {
  v1::TrainingJob job;
  // In place of the compiled training program, whatever the proofs say of it;
  // null: the compiled one.
  const schedule::Program* program = nullptr;
  // Steps, each under the delays of a seed of its own.
  int seeds = 20;
};

// Runs all ranks over loopback, with dead memory poisoned. An error when an op
// fails, or all ranks wait for each other.
absl::StatusOr<RunBits> RunDelayed(const DelayedRun& run);

// Runs until the bits of a step are not those of `expected`; empty when all
// are, else what went wrong.
std::string HarmOf(const DelayedRun& run, const RunBits& expected);

// The same on the device as it is, without delays.
absl::StatusOr<RunBits> RunUndelayed(const v1::TrainingJob& job, int steps);

// What `fn` returns in a process of its own; "died of signal N" when that ends
// it. Requires: the calling process has one thread.
std::string InOwnProcess(const std::function<std::string()>& fn);

}  // namespace weft::exec::testing

#endif  // WEFT_WORKER_EXEC_TESTING_DELAYED_RUN_H_
