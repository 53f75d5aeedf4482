// One job under many legal combinations of how it is scheduled, sharded and
// divided, and which of their results must be equal.
#ifndef WEFT_CLIENT_PARITY_H_
#define WEFT_CLIENT_PARITY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "weft/v1/job.pb.h"

namespace weft::client {

// What may be varied. The dispatcher has one value so far.
enum class ParityAxis : uint8_t {
  kSchedule,
  kDelayWgrad,
  kStrategy,
  kWorld,
  kEp,
  kMicrobatch,
  kDispatcher,
};

// From names as `schedule`, `delay_wgrad`. INVALID_ARGUMENT, naming those that
// are known, for any other.
absl::StatusOr<std::vector<ParityAxis>> ParseParityAxes(
    const std::vector<std::string>& names);

// A combination.
struct ParityRun {
  std::string label;  // the varied fields, as "schedule=sequential world=2"
  // Runs of one class take every sum in the same order: their results are equal
  // to the bit. Those of others agree within bounds.
  std::string sum_class;
  v1::TrainingJob job;  // writes parameters, and gradients of step 1
};

// All combinations of `base`, the first being the one nearest to it: worlds are
// the powers of two up to `workers`, ep the divisors of a world, microbatches
// the divisors of a rank's share of the batch. Fields that are not varied keep
// their values; a combination that cannot be divided so is left out.
std::vector<ParityRun> ParityRuns(const v1::TrainingJob& base,
                                  const std::vector<ParityAxis>& axes,
                                  int64_t workers);

// Largest relative errors of the first step between classes.
struct ParityBounds {
  double loss = 2e-6;
  double gradients = 3e-5;  // ||a - b|| / ||b||, of the worst tensor
};

enum class ParityVerdict : uint8_t { kIdentical, kWithinBounds, kDifferent };

struct ParityComparison {
  ParityVerdict verdict = ParityVerdict::kIdentical;
  // Where they differ first, or by how much at most; empty when identical.
  std::string detail;
};

// Compares what two jobs left in their artifacts folders: losses and norms of
// all steps, gradients of the first, final parameters. Errors as ParamFolder.
absl::StatusOr<ParityComparison> CompareRuns(const std::string& a,
                                             const std::string& b,
                                             const ParityBounds& bounds = {});

}  // namespace weft::client

#endif  // WEFT_CLIENT_PARITY_H_
