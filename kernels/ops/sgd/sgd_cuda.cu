#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/update.cuh"
#include "kernels/ops/sgd/sgd.h"

namespace weft::ops {
namespace {

// The arithmetic of the CPU form, to the bit.
template <bool kMomentum>
struct Rule {
  static constexpr int kArrays = kMomentum ? 2 : 1;  // w, m

  double momentum;
  double learning_rate_scale;
  double weight_decay;
  // Of the step.
  double grad_scale = 1;
  double lr = 0;
  double decay = 0;  // lr * weight_decay

  __device__ void Begin(const OptimizerScalars& scalars) {
    grad_scale = scalars.grad_scale;
    lr = __dmul_rn(scalars.learning_rate, learning_rate_scale);
    decay = __dmul_rn(lr, weight_decay);
  }

  __device__ void operator()(float grad, float (&x)[kArrays]) const {
    double step = __dmul_rn(grad_scale, static_cast<double>(grad));
    if constexpr (kMomentum) {
      step = fma(momentum, static_cast<double>(x[1]), step);
      x[1] = static_cast<float>(step);
    }
    const double old = x[0];
    const double decayed = fma(-decay, old, old);
    x[0] = static_cast<float>(fma(-lr, step, decayed));
  }
};

template <bool kMomentum>
void Update(const SgdArgs& args,
            const cuda::Segment<Rule<kMomentum>::kArrays>& segment,
            device::Stream& stream) {
  Rule<kMomentum> rule;
  rule.momentum = args.momentum;
  rule.learning_rate_scale = args.learning_rate_scale;
  rule.weight_decay = args.weight_decay;
  cuda::Update("Sgd", rule, args.scalars, args.grad, segment, args.changed_bits,
               stream);
}

void Run(const SgdArgs& args, device::Stream& stream) {
  if (args.m != nullptr) {
    Update<true>(args, {args.count, {args.w, args.m}}, stream);
  } else {
    Update<false>(args, {args.count, {args.w}}, stream);
  }
}

[[maybe_unused]] const bool kRegistered = RegisterCudaForm<&Sgd>(&Run);

}  // namespace
}  // namespace weft::ops
