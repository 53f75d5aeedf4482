#include <cmath>
#include <cstring>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/elements.h"
#include "kernels/ops/sgd/sgd.h"

namespace weft::ops {
namespace {

// Every product that is added to something is an explicit fma, so an element
// has the same bits wherever a segment begins and ends.
float Moved(double lr, double weight_decay, float w, double direction) {
  const double old = w;
  const double decayed = std::fma(-lr * weight_decay, old, old);
  return static_cast<float>(std::fma(-lr, direction, decayed));
}

uint32_t BitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

template <typename T>
void Update(const SgdArgs& args, const T* grad) {
  const OptimizerScalars& scalars = *args.scalars;
  const double lr = scalars.learning_rate * args.learning_rate_scale;
  uint32_t changed = 0;
  for (int64_t i = 0; i < args.count; ++i) {
    double step = scalars.grad_scale * static_cast<double>(ToFloat(grad[i]));
    if (args.m != nullptr) {
      step = std::fma(args.momentum, static_cast<double>(args.m[i]), step);
      args.m[i] = static_cast<float>(step);
    }
    const float moved = Moved(lr, args.weight_decay, args.w[i], step);
    changed |= BitsOf(args.w[i]) ^ BitsOf(moved);
    args.w[i] = moved;
  }
  if (args.changed_bits != nullptr) *args.changed_bits |= changed;
}

}  // namespace

void Sgd(const SgdArgs& args, device::Stream& stream) {
  if (RunOnCuda<&Sgd>(args, stream)) return;
  if (args.scalars->skip != 0) return;
  WithElementType(args.grad.dtype, [&](auto type) {
    Update(args, Elements<decltype(type)>(args.grad));
  });
}

}  // namespace weft::ops
