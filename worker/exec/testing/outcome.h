// What a short training run leads to, to compare runs bit for bit.
#ifndef WEFT_WORKER_EXEC_TESTING_OUTCOME_H_
#define WEFT_WORKER_EXEC_TESTING_OUTCOME_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/exec/initial_weights.h"
#include "worker/exec/testing/tiny_job.h"

namespace weft::exec::testing {

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  // Objective, then every router loss, of every step.
  std::vector<double> objectives;
  std::map<std::string, std::vector<float>> parameters;
};

// Runs the job's steps. `weights` is where it starts; null: from its seed.
absl::StatusOr<Outcome> Train(const TinyJob& tiny,
                              SyntheticSamples::Kind samples,
                              const InitialWeights* weights = nullptr);

// The first difference, in words; empty when there is none. Requires: `b` has
// all of `a`.
std::string Difference(const Outcome& a, const Outcome& b);

}  // namespace weft::exec::testing

#endif  // WEFT_WORKER_EXEC_TESTING_OUTCOME_H_
