#include <cmath>
#include <cstring>

#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/elements.h"

namespace weft::ops {
namespace {

constexpr int64_t kBlock = 8;

// Constants of one call, so that an element costs one division and one root.
struct Factors {
  double grad_scale;
  double beta1;
  double beta2;
  double one_minus_beta1;
  double one_minus_beta2;
  double inverse_bias2;
  double eps;
  double step_size;  // lr / bias1
  double decay;      // lr * weight_decay
};

Factors FactorsOf(const AdamWArgs& args) {
  const OptimizerScalars& scalars = *args.scalars;
  const double lr = scalars.learning_rate * args.learning_rate_scale;
  return {scalars.grad_scale, args.beta1,         args.beta2,
          1.0 - args.beta1,   1.0 - args.beta2,   1.0 / scalars.bias2,
          args.eps,           lr / scalars.bias1, lr * args.weight_decay};
}

uint32_t BitsOf(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

// One block of elements. Every product and sum is an explicit fma or stands
// alone, so an element has the same bits wherever a segment begins and ends.
// `changed` is or-ed, lane by lane, with the bits of w that change.
void UpdateBlock(const Factors& f, const float* grad, float* w, float* m,
                 float* v, uint32_t* changed) {
  for (int64_t i = 0; i < kBlock; ++i) {
    const double g = f.grad_scale * static_cast<double>(grad[i]);
    const double m1 =
        std::fma(f.beta1, static_cast<double>(m[i]), f.one_minus_beta1 * g);
    const double v1 =
        std::fma(f.beta2, static_cast<double>(v[i]), f.one_minus_beta2 * g * g);
    const double old = w[i];
    const double decayed = std::fma(-f.decay, old, old);
    const double root = std::sqrt(v1 * f.inverse_bias2) + f.eps;
    const float moved = static_cast<float>(decayed - f.step_size * m1 / root);
    changed[i] |= BitsOf(w[i]) ^ BitsOf(moved);
    w[i] = moved;
    m[i] = static_cast<float>(m1);
    v[i] = static_cast<float>(v1);
  }
}

// The elements from `i` on, fewer than a block.
template <typename T>
void UpdateTail(const Factors& f, const AdamWArgs& args, int64_t i,
                uint32_t* changed) {
  float grad[kBlock] = {};
  float w[kBlock] = {};
  float m[kBlock] = {};
  float v[kBlock] = {};
  for (int64_t j = 0; i + j < args.count; ++j) {
    grad[j] = ToFloat(Elements<T>(args.grad)[i + j]);
    w[j] = args.w[i + j];
    m[j] = args.m[i + j];
    v[j] = args.v[i + j];
  }
  UpdateBlock(f, grad, w, m, v, changed);
  for (int64_t j = 0; i + j < args.count; ++j) {
    args.w[i + j] = w[j];
    args.m[i + j] = m[j];
    args.v[i + j] = v[j];
  }
}

// The gradient being of type T.
template <typename T>
void Update(const AdamWArgs& args) {
  const Factors f = FactorsOf(args);
  uint32_t changed[kBlock] = {};
  float grad[kBlock];
  int64_t i = 0;
  for (; i + kBlock <= args.count; i += kBlock) {
    ConvertElements(Elements<T>(args.grad) + i, kBlock, grad);
    UpdateBlock(f, grad, args.w + i, args.m + i, args.v + i, changed);
  }
  if (i < args.count) UpdateTail<T>(f, args, i, changed);
  if (args.changed_bits == nullptr) return;
  for (const uint32_t bits : changed) *args.changed_bits |= bits;
}

}  // namespace

void AdamW(const AdamWArgs& args, device::Stream& stream) {
  if (RunOnCuda<&AdamW>(args, stream)) return;
  if (args.scalars->skip != 0) return;
  WithElementType(args.grad.dtype,
                  [&](auto type) { Update<decltype(type)>(args); });
}

}  // namespace weft::ops
