#include "worker/layers/residual.h"

#include "kernels/ops/elementwise/elementwise.h"

namespace weft::layers {

void AddResidual(const model::Shape& shape, const device::ConstTensor& x,
                 const device::Tensor& y, device::Stream& stream) {
  ops::AddArgs args;
  args.count = shape.tokens * shape.hidden;
  args.a = x;
  args.b = y;
  args.out = y;
  args.factor = static_cast<float>(shape.residual_multiplier);
  ops::Add(args, stream);
}

device::ConstTensor BranchGrad(const model::Shape& shape,
                               const device::ConstTensor& dy,
                               const device::Tensor& scaled,
                               device::Stream& stream) {
  if (shape.residual_multiplier == 1) return dy;
  ops::ScaleArgs args;
  args.count = shape.tokens * shape.hidden;
  args.factor = static_cast<float>(shape.residual_multiplier);
  args.x = dy;
  args.out = scaled;
  ops::Scale(args, stream);
  return scaled;
}

}  // namespace weft::layers
