#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/update.cuh"

namespace weft::ops {
namespace {

// The arithmetic of the CPU form, to the bit.
struct Rule {
  static constexpr int kArrays = 3;  // w, m, v

  double beta1;
  double beta2;
  double one_minus_beta1;
  double one_minus_beta2;
  double eps;
  double learning_rate_scale;
  double weight_decay;
  // Of the step.
  double grad_scale = 1;
  double inverse_bias2 = 1;
  double step_size = 0;  // lr / bias1
  double decay = 0;      // lr * weight_decay

  __device__ void Begin(const OptimizerScalars& scalars) {
    const double lr = __dmul_rn(scalars.learning_rate, learning_rate_scale);
    grad_scale = scalars.grad_scale;
    inverse_bias2 = __ddiv_rn(1.0, scalars.bias2);
    step_size = __ddiv_rn(lr, scalars.bias1);
    decay = __dmul_rn(lr, weight_decay);
  }

  __device__ void operator()(float grad, float (&x)[kArrays]) const {
    const double g = __dmul_rn(grad_scale, static_cast<double>(grad));
    const double m =
        fma(beta1, static_cast<double>(x[1]), __dmul_rn(one_minus_beta1, g));
    const double v = fma(beta2, static_cast<double>(x[2]),
                         __dmul_rn(__dmul_rn(one_minus_beta2, g), g));
    const double old = x[0];
    const double decayed = fma(-decay, old, old);
    const double root = __dadd_rn(__dsqrt_rn(__dmul_rn(v, inverse_bias2)), eps);
    const double step = __ddiv_rn(__dmul_rn(step_size, m), root);
    x[0] = static_cast<float>(__dsub_rn(decayed, step));
    x[1] = static_cast<float>(m);
    x[2] = static_cast<float>(v);
  }
};

void Run(const AdamWArgs& args, device::Stream& stream) {
  Rule rule;
  rule.beta1 = args.beta1;
  rule.beta2 = args.beta2;
  rule.one_minus_beta1 = 1.0 - args.beta1;
  rule.one_minus_beta2 = 1.0 - args.beta2;
  rule.eps = args.eps;
  rule.learning_rate_scale = args.learning_rate_scale;
  rule.weight_decay = args.weight_decay;
  cuda::Update<Rule>("AdamW", rule, args.scalars, args.grad,
                     {args.count, {args.w, args.m, args.v}}, args.changed_bits,
                     stream);
}

[[maybe_unused]] const bool kRegistered = RegisterCudaForm<&AdamW>(&Run);

}  // namespace
}  // namespace weft::ops
