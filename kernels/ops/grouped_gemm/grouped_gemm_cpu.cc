#include "kernels/ops/gemm/gemm.h"
#include "kernels/ops/grouped_gemm/grouped_gemm.h"

namespace weft::ops {
namespace {

// What one expert works on.
struct Group {
  int64_t first_row;
  int64_t rows;
  int64_t weight;  // first element of its weight
};

Group GroupOf(const GroupedShape& shape, int64_t expert) {
  const int64_t stride =
      shape.weight_stride != 0 ? shape.weight_stride : shape.in * shape.out;
  const int64_t first = shape.offsets[expert];
  return {first, shape.offsets[expert + 1] - first, expert * stride};
}

}  // namespace

void GroupedForward(const GroupedForwardArgs& args, device::Stream& stream) {
  const GroupedShape& s = args.shape;
  for (int64_t e = 0; e < s.num_experts; ++e) {
    const Group g = GroupOf(s, e);
    LinearForwardArgs linear;
    linear.rows = g.rows;
    linear.in = s.in;
    linear.out = s.out;
    linear.x = args.x + g.first_row * s.in;
    linear.weight = args.weight + g.weight;
    linear.y = args.y + g.first_row * s.out;
    LinearForward(linear, stream);
  }
}

void GroupedDgrad(const GroupedDgradArgs& args, device::Stream& stream) {
  const GroupedShape& s = args.shape;
  for (int64_t e = 0; e < s.num_experts; ++e) {
    const Group g = GroupOf(s, e);
    LinearDgradArgs linear;
    linear.rows = g.rows;
    linear.in = s.in;
    linear.out = s.out;
    linear.dy = args.dy + g.first_row * s.out;
    linear.weight = args.weight + g.weight;
    linear.dx = args.dx + g.first_row * s.in;
    LinearDgrad(linear, stream);
  }
}

void GroupedWgrad(const GroupedWgradArgs& args, device::Stream& stream) {
  const GroupedShape& s = args.shape;
  for (int64_t e = 0; e < s.num_experts; ++e) {
    const Group g = GroupOf(s, e);
    LinearWgradArgs linear;
    linear.rows = g.rows;
    linear.in = s.in;
    linear.out = s.out;
    linear.dy = args.dy + g.first_row * s.out;
    linear.x = args.x + g.first_row * s.in;
    linear.dweight = args.dweight + g.weight;
    linear.accumulate = args.accumulate;
    LinearWgrad(linear, stream);
  }
}

}  // namespace weft::ops
