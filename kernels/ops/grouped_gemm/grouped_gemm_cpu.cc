#include "kernels/ops/cuda_form.h"
#include "kernels/ops/gemm/gemm.h"
#include "kernels/ops/grouped_gemm/grouped_gemm.h"

namespace weft::ops {
namespace {

// Calls linear(args, first_row, weight) for each expert, with the sizes of its
// linear layer in `args`, its first row, and the first element of its weight.
template <typename LinearArgs, typename Linear>
void ForEachExpert(const GroupedShape& s, Linear&& linear) {
  const int64_t stride = s.weight_stride != 0 ? s.weight_stride : s.in * s.out;
  for (int64_t e = 0; e < s.num_experts; ++e) {
    LinearArgs args;
    args.rows = s.offsets[e + 1] - s.offsets[e];
    args.in = s.in;
    args.out = s.out;
    linear(args, s.offsets[e], e * stride);
  }
}

}  // namespace

void GroupedForward(const GroupedForwardArgs& args, device::Stream& stream) {
  if (RunOnCuda<&GroupedForward>(args, stream)) return;
  const GroupedShape& s = args.shape;
  ForEachExpert<LinearForwardArgs>(
      s, [&](LinearForwardArgs& linear, int64_t row, int64_t weight) {
        linear.x = args.x + row * s.in;
        linear.weight = args.weight + weight;
        linear.y = args.y + row * s.out;
        LinearForward(linear, stream);
      });
}

void GroupedDgrad(const GroupedDgradArgs& args, device::Stream& stream) {
  if (RunOnCuda<&GroupedDgrad>(args, stream)) return;
  const GroupedShape& s = args.shape;
  ForEachExpert<LinearDgradArgs>(
      s, [&](LinearDgradArgs& linear, int64_t row, int64_t weight) {
        linear.dy = args.dy + row * s.out;
        linear.weight = args.weight + weight;
        linear.dx = args.dx + row * s.in;
        LinearDgrad(linear, stream);
      });
}

void GroupedWgrad(const GroupedWgradArgs& args, device::Stream& stream) {
  if (RunOnCuda<&GroupedWgrad>(args, stream)) return;
  const GroupedShape& s = args.shape;
  ForEachExpert<LinearWgradArgs>(
      s, [&](LinearWgradArgs& linear, int64_t row, int64_t weight) {
        linear.dy = args.dy + row * s.out;
        linear.x = args.x + row * s.in;
        linear.dweight = args.dweight + weight;
        linear.accumulate = args.accumulate;
        LinearWgrad(linear, stream);
      });
}

}  // namespace weft::ops
