// Floating-point operations of training on one token: what a model's
// utilisation is measured against.
#ifndef WEFT_SCHEDULE_FLOPS_H_
#define WEFT_SCHEDULE_FLOPS_H_

#include <string>

#include "model/shape.h"

namespace weft::schedule {

// Forward and backward of the matrix products a token takes part in, two
// operations a multiply-add: 6 for each weight that a token meets (2 forward, 4
// backward), of attention the causal half of its scores, and of Mamba-2 one
// write and one read of each element of the states. What is
// recomputed, looked up or elementwise does not count. Narayanan et al.,
// "Efficient Large-Scale Language Model Training on GPU Clusters", 2021,
// appendix, with the experts a token goes to in place of all.
struct TokenFlops {
  double projections = 0;   // of mixers, and of depths' inputs
  double scores = 0;        // of attention: 6 * sequence * heads * head_dim
  double states = 0;        // of Mamba-2: 12 * heads * head_dim * state_size
  double feed_forward = 0;  // dense, experts, shared experts, routers
  double head = 0;

  double total() const {
    return projections + scores + states + feed_forward + head;
  }
};
TokenFlops TrainingFlopsOf(const model::Shape& shape);

// The formula with the shape's numbers, one line.
std::string DescribeFlops(const TokenFlops& flops);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_FLOPS_H_
