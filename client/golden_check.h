// What a job that ran a reference model left, against what it must have left.
#ifndef WEFT_CLIENT_GOLDEN_CHECK_H_
#define WEFT_CLIENT_GOLDEN_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/golden_case.h"

namespace weft::client {

// One row of the report.
struct GoldenRow {
  std::string check;
  std::string worst;  // the tensor or the step with the largest error
  double error = 0;   // infinite where the reference is zero and we are not
  double bound = 0;

  bool ok() const { return error <= bound; }
};

// Compares losses and gradient norms of all steps, the gradients of the first
// and the parameters after the last, within the bounds of the case; where the
// case has them, losses of routers, the objective, and logits and routing of
// the first step, too.
// `job` is one that MakeGoldenJob made, `artifacts` its folder. NOT_FOUND or
// DATA_LOSS, naming the file, when something to compare is missing or of
// another shape.
absl::StatusOr<std::vector<GoldenRow>> CheckGolden(
    const GoldenCase& golden, const v1::TrainingJob& job,
    const std::string& artifacts);

// Compares the tokens that each expert got in `step`, from 1: the error is the
// number of experts with others. `job` is one that MakeGoldenJob made for the
// first step, else one that MakeRoutingJob made. Errors as CheckGolden.
absl::StatusOr<GoldenRow> CheckExpertTokens(const GoldenCase& golden,
                                            const v1::TrainingJob& job,
                                            const std::string& artifacts,
                                            int64_t step);

}  // namespace weft::client

#endif  // WEFT_CLIENT_GOLDEN_CHECK_H_
