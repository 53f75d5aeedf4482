// What two runs of one job left, and how far apart it is.
#ifndef WEFT_CLIENT_PARITY_COMPARE_H_
#define WEFT_CLIENT_PARITY_COMPARE_H_

#include <string>

#include "absl/status/statusor.h"
#include "weft/v1/job.pb.h"

namespace weft::client {

// Largest relative errors of the first step between runs that take sums in
// other orders, given the same routing.
struct ParityBounds {
  double losses = 2e-6;     // loss, objective, losses of routers
  double gradients = 3e-5;  // ||a - b|| / ||b||, of every tensor
};

// Those of a job's number formats. The defaults are fp32's. In bf16, with unit
// roundoff u = 2^-8, a rounding is off by 0.4 u in the root mean square, and n
// independent ones in each of two runs by 0.4 u sqrt(2 n):
//  * gradients in bf16 are rounded 3 + microbatches times at most: 8 u, enough
//    for 170 microbatches. Losses of the first step do not change.
//  * bf16 in compute rounds every value on the way from a parameter to the loss
//    and back: gradients 16 u, enough for 350 values each way. The loss is a
//    mean over tokens, whose errors are mostly independent: u.
ParityBounds BoundsOf(const v1::PrecisionConfig& precision);

struct ParityComparison {
  // The first number that is not equal to the bit, and its two values; empty
  // when all are.
  std::string first;
  // The first number of the first step outside its bound, with error and bound;
  // of a gradient also the element that is most off. Empty when there is none.
  std::string broken;
  std::string largest;  // errors of the first step: of losses, of gradients

  bool is_identical() const { return first.empty(); }
  bool is_within_bounds() const { return broken.empty(); }
};

// Compares what two jobs left in their artifacts folders: losses and norms of
// all steps, gradients of the first, final parameters. Errors as ParamFolder;
// DATA_LOSS also when a job logged no step.
absl::StatusOr<ParityComparison> CompareRuns(const std::string& a,
                                             const std::string& b,
                                             const ParityBounds& bounds = {});

}  // namespace weft::client

#endif  // WEFT_CLIENT_PARITY_COMPARE_H_
