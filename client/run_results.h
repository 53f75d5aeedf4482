// What a job leaves in its artifacts folder, in numbers to compare.
#ifndef WEFT_CLIENT_RUN_RESULTS_H_
#define WEFT_CLIENT_RUN_RESULTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/params_diff.h"
#include "weft/v1/job_service.pb.h"

namespace weft::client {

// Of a step, from the log that rank 0 writes. NaN for a number that is not
// finite.
struct StepNumbers {
  double loss = 0;
  double grad_norm = 0;
  double objective = 0;
  std::vector<v1::RouterLoss> router_losses;
};

// By step. NOT_FOUND when there is no log; DATA_LOSS when it is damaged.
absl::StatusOr<std::vector<StepNumbers>> ReadSteps(
    const std::string& artifacts);

// The elements of a parameter, put together from its fragments. DATA_LOSS when
// the folder holds no F32 parameter of that name.
absl::StatusOr<std::vector<float>> WholeParam(const ParamFolder& folder,
                                              const std::string& name);

// `error` over the size of what it is an error of. 0 over 0 is none; anything
// else over 0 is infinite, and so is what is not a number.
double RelativeTo(double error, double size);

// ||a - b|| / ||b - from||, where an empty `from` is zero. Requires: equal
// sizes.
double NormError(absl::Span<const float> a, absl::Span<const float> b,
                 absl::Span<const float> from = {});

}  // namespace weft::client

#endif  // WEFT_CLIENT_RUN_RESULTS_H_
