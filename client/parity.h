// One job under many legal combinations of how it is scheduled, sharded and
// divided, and which of their results must be equal.
#ifndef WEFT_CLIENT_PARITY_H_
#define WEFT_CLIENT_PARITY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/v1/job.pb.h"

namespace weft::client {

// What may be varied.
enum class ParityAxis : uint8_t {
  kSchedule,
  kDelayWgrad,
  kStrategy,
  kWorld,
  kEp,
  kMicrobatch,
  kDispatcher,
  kRecompute,
};

// From names as `schedule`, `delay_wgrad`. INVALID_ARGUMENT, naming those that
// are known, for any other.
absl::StatusOr<std::vector<ParityAxis>> ParseParityAxes(
    const std::vector<std::string>& names);

// A combination.
struct ParityRun {
  // The varied fields: "schedule=sequential", "world=2".
  std::vector<std::string> values;
  // Runs of one objective minimise the same function of the same batch. Others
  // cannot be compared: their losses are not meant to be equal.
  std::string objective;
  // Runs of one class take every sum in the same order: their results are equal
  // to the bit. Those of others agree within bounds.
  std::string sum_class;
  v1::TrainingJob job;  // writes parameters, and gradients of step 1

  std::string label() const;  // the values, a blank between
};

// INVALID_ARGUMENT when a size of a job that is to be varied is out of its
// range.
absl::Status CheckParitySizes(const v1::TrainingJob& job);

// All combinations of `base`, the first being the one nearest to it: worlds are
// the powers of two up to `workers`, ep the divisors of a world, microbatches
// the divisors of a rank's share of the batch, after those of a base that cuts
// its step unevenly; of recompute nothing, each part that layers have, and all.
// Fields that are not varied keep their values. What is
// legal the coordinator says: some of the combinations may not be.
// Requires: CheckParitySizes() is OK.
std::vector<ParityRun> ParityRuns(const v1::TrainingJob& base,
                                  const std::vector<ParityAxis>& axes,
                                  int64_t workers);

}  // namespace weft::client

#endif  // WEFT_CLIENT_PARITY_H_
