#include "worker/layers/linear.h"

#include "kernels/ops/bias/bias.h"
#include "kernels/ops/gemm/gemm.h"
#include "kernels/ops/rms_norm/rms_norm.h"

namespace weft::layers {

using device::ConstTensor;
using device::Tensor;

namespace {

ops::LinearDgradArgs DgradArgs(const Linear& size, const ConstTensor& dy,
                               const ConstTensor& weight, const Tensor& dx) {
  ops::LinearDgradArgs args;
  args.rows = size.rows;
  args.in = size.in;
  args.out = size.out;
  args.dy = dy;
  args.weight = weight;
  args.dx = dx;
  return args;
}

}  // namespace

void Forward(const Linear& size, const ConstTensor& x,
             const ConstTensor& weight, const Tensor& y,
             device::Stream& stream) {
  ops::LinearForwardArgs args;
  args.rows = size.rows;
  args.in = size.in;
  args.out = size.out;
  args.x = x;
  args.weight = weight;
  args.y = y;
  ops::LinearForward(args, stream);
}

void Dgrad(const Linear& size, const ConstTensor& dy, const ConstTensor& weight,
           const Tensor& dx, device::Stream& stream) {
  ops::LinearDgrad(DgradArgs(size, dy, weight, dx), stream);
}

void AddDgrad(const Linear& size, const ConstTensor& dy,
              const ConstTensor& weight, const Tensor& dx,
              device::Stream& stream) {
  ops::LinearDgradArgs args = DgradArgs(size, dy, weight, dx);
  args.accumulate = true;
  ops::LinearDgrad(args, stream);
}

void Wgrad(const Linear& size, const ConstTensor& dy, const ConstTensor& x,
           const Grad& dweight, device::Stream& stream) {
  if (dweight.data == nullptr) return;
  ops::LinearWgradArgs args;
  args.rows = size.rows;
  args.in = size.in;
  args.out = size.out;
  args.dy = dy;
  args.x = x;
  args.dweight = dweight.data;
  args.accumulate = dweight.accumulate;
  ops::LinearWgrad(args, stream);
}

void AddBias(const Linear& size, const ConstTensor& bias, const Tensor& y,
             device::Stream& stream) {
  if (bias == nullptr) return;
  ops::BiasForwardArgs args;
  args.rows = size.rows;
  args.columns = size.out;
  args.bias = bias;
  args.y = y;
  ops::BiasForward(args, stream);
}

void BiasWgrad(const Linear& size, const ConstTensor& dy, const Grad& dbias,
               device::Stream& stream) {
  if (dbias.data == nullptr) return;
  ops::BiasWgradArgs args;
  args.rows = size.rows;
  args.columns = size.out;
  args.dy = dy;
  args.dbias = dbias.data;
  args.accumulate = dbias.accumulate;
  ops::BiasWgrad(args, stream);
}

void NormForward(const model::Shape& shape, const ConstTensor& x,
                 const ConstTensor& weight, const Tensor& y, float* rstd,
                 device::Stream& stream) {
  NormForward(shape, shape.hidden, x, weight, y, rstd, stream);
}

void NormForward(const model::Shape& shape, int64_t columns,
                 const ConstTensor& x, const ConstTensor& weight,
                 const Tensor& y, float* rstd, device::Stream& stream) {
  ops::RmsNormForwardArgs args;
  args.rows = shape.tokens;
  args.hidden = columns;
  args.eps = static_cast<float>(shape.norm_epsilon);
  args.x = x;
  args.weight = weight;
  args.y = y;
  args.rstd = rstd;
  ops::RmsNormForward(args, stream);
}

void NormBackward(const model::Shape& shape, const NormBackwardArgs& args,
                  device::Stream& stream) {
  const int64_t columns = args.columns > 0 ? args.columns : shape.hidden;
  ops::RmsNormWgradArgs wgrad;
  wgrad.rows = shape.tokens;
  wgrad.hidden = columns;
  wgrad.x = args.x;
  wgrad.rstd = args.rstd;
  wgrad.dy = args.dy;
  wgrad.dweight = args.dweight.data;
  wgrad.accumulate = args.dweight.accumulate;
  if (wgrad.dweight != nullptr) ops::RmsNormWgrad(wgrad, stream);

  ops::RmsNormDgradArgs dgrad;
  dgrad.rows = shape.tokens;
  dgrad.hidden = columns;
  dgrad.x = args.x;
  dgrad.weight = args.weight;
  dgrad.rstd = args.rstd;
  dgrad.dy = args.dy;
  dgrad.add = args.add;
  dgrad.dx = args.dx;
  ops::RmsNormDgrad(dgrad, stream);
}

}  // namespace weft::layers
