// What a job that ran a reference model left, against what it must have left.
#ifndef WEFT_CLIENT_GOLDEN_CHECK_H_
#define WEFT_CLIENT_GOLDEN_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/golden_case.h"

namespace weft::client {

// Largest errors that pass. Of numbers |a - b| / |b|, of tensors
// ||a - b|| / ||b||, for the worst of them.
struct GoldenBounds {
  double losses = 2e-6;
  double gradients = 3e-5;
  double norms = 3e-6;
  double change = 2e-4;  // of a parameter over all steps
};

// One row of the report.
struct GoldenRow {
  std::string check;
  std::string worst;  // the tensor or the step with the largest error
  double error = 0;   // infinite where the reference is zero and we are not
  double bound = 0;

  bool ok() const { return error <= bound; }
};

// Compares losses and gradient norms of all steps, the gradients of the first
// and the change of every parameter over all. `artifacts` is the job's folder.
// NOT_FOUND or DATA_LOSS, naming the file, when something to compare is missing
// or of another shape.
absl::StatusOr<std::vector<GoldenRow>> CheckGolden(
    const GoldenCase& golden, const std::string& artifacts,
    const GoldenBounds& bounds = {});

}  // namespace weft::client

#endif  // WEFT_CLIENT_GOLDEN_CHECK_H_
