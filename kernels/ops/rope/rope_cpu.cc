#include <algorithm>
#include <cmath>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/elements.h"
#include "kernels/ops/rope/rope.h"

namespace weft::ops {
namespace {

using simd::F8;

constexpr double kPi = 3.14159265358979323846;

// Rotates every query and key head; `direction` is 1 forward, -1 backward.
template <typename T>
void RotateHeads(const RopeArgs& args, float direction) {
  const int64_t half = args.rot_dim / 2;
  const int64_t rotated_heads = args.num_heads + args.num_kv_heads;
  const int64_t width = (rotated_heads + args.num_kv_heads) * args.head_dim;
  for (int64_t token = 0; token < args.tokens; ++token) {
    const int64_t position = token % args.seq;
    const float* cos = args.cos + position * half;
    const float* sin = args.sin + position * half;
    for (int64_t head = 0; head < rotated_heads; ++head) {
      T* x = Elements<T>(args.qkv) + token * width + head * args.head_dim;
      simd::ForEach8(half, [&](int64_t i, auto lanes) {
        const F8 c = simd::Load(cos + i, lanes);
        const F8 s = simd::Load(sin + i, lanes) * direction;
        const F8 a = simd::Load(x + i, lanes);
        const F8 b = simd::Load(x + half + i, lanes);
        simd::Store(x + i, simd::MultiplyAdd(a, c, -(b * s)), lanes);
        simd::Store(x + half + i, simd::MultiplyAdd(b, c, a * s), lanes);
      });
    }
  }
}

void Rotate(const RopeArgs& args, float direction) {
  WithElementType(args.qkv.dtype, [&](auto type) {
    RotateHeads<decltype(type)>(args, direction);
  });
}

}  // namespace

void BuildRopeFrequencies(int64_t rot_dim, double theta, float* inv_freq) {
  for (int64_t i = 0; i < rot_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / rot_dim;
    inv_freq[i] = static_cast<float>(std::pow(theta, exponent));
  }
}

void BuildYarnFrequencies(int64_t rot_dim, double theta, const Yarn& yarn,
                          float* inv_freq) {
  const double d = static_cast<double>(rot_dim);
  const auto dim = [&](double rotations) {
    return d * std::log(yarn.original_positions / (2 * kPi * rotations)) /
           (2 * std::log(theta));
  };
  const double low = std::max(std::floor(dim(yarn.beta_fast)), 0.0);
  double high = std::min(std::ceil(dim(yarn.beta_slow)), d - 1);
  if (high == low) high += 0.001;
  for (int64_t i = 0; i < rot_dim / 2; ++i) {
    const double r = std::clamp((i - low) / (high - low), 0.0, 1.0);
    inv_freq[i] = static_cast<float>(std::pow(theta, -2.0 * i / d) *
                                     ((1 - r) + r / yarn.factor));
  }
}

void BuildRopeTables(int64_t positions, int64_t rot_dim, const float* inv_freq,
                     float* cos, float* sin, double magnitude) {
  const int64_t half = rot_dim / 2;
  for (int64_t position = 0; position < positions; ++position) {
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * inv_freq[i];
      const double exact = angle;
      cos[position * half + i] =
          static_cast<float>(std::cos(exact) * magnitude);
      sin[position * half + i] =
          static_cast<float>(std::sin(exact) * magnitude);
    }
  }
}

void RopeForward(const RopeArgs& args, device::Stream& stream) {
  if (RunOnCuda<&RopeForward>(args, stream)) return;
  Rotate(args, 1.0f);
}

void RopeBackward(const RopeArgs& args, device::Stream& stream) {
  if (RunOnCuda<&RopeBackward>(args, stream)) return;
  Rotate(args, -1.0f);
}

}  // namespace weft::ops
