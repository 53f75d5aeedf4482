#include <cmath>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/gated_norm/gated_norm.h"
#include "kernels/ops/math/double_sums.h"
#include "kernels/ops/math/elements.h"
#include "kernels/ops/math/vec_math.h"

namespace weft::ops {
namespace {

using simd::F8;

// Where a group of a row begins: in y, out and their gradients, in z, among the
// columns, and in rstd.
struct Group {
  int64_t y;
  int64_t z;
  int64_t column;
  int64_t rstd;
};

// Calls f(group), rows and in them groups ascending.
template <typename F>
void ForEachGroup(const GatedNormShape& s, F&& f) {
  for (int64_t row = 0; row < s.rows; ++row) {
    for (int64_t g = 0; g < s.groups; ++g) {
      const int64_t column = g * s.group_columns();
      f(Group{row * s.columns + column, row * s.z_stride + column, column,
              row * s.groups + g});
    }
  }
}

template <typename T, typename Lanes>
F8 Gated(const T* y, const T* z, Lanes lanes) {
  const F8 gate = simd::Load(z, lanes);
  return simd::Load(y, lanes) * (gate * simd::Sigmoid(gate));
}

template <typename T>
void Forward(const GatedNormForwardArgs& args) {
  const int64_t width = args.shape.group_columns();
  ForEachGroup(args.shape, [&](const Group& group) {
    const T* y = Elements<T>(args.y) + group.y;
    const T* z = Elements<T>(args.z) + group.z;
    const T* weights = Elements<T>(args.weight) + group.column;
    T* out = Elements<T>(args.out) + group.y;
    F8 squares = {};
    simd::ForEach8(width, [&](int64_t i, auto lanes) {
      const F8 g = Gated(y + i, z + i, lanes);
      squares += g * g;
    });
    const float mean = simd::SumLanes(squares) / static_cast<float>(width);
    const float rstd = 1.0f / std::sqrt(mean + args.eps);
    args.rstd[group.rstd] = rstd;
    simd::ForEach8(width, [&](int64_t i, auto lanes) {
      const F8 weight = simd::Load(weights + i, lanes);
      simd::Store(out + i, Gated(y + i, z + i, lanes) * rstd * weight, lanes);
    });
  });
}

template <typename T>
void Dgrad(const GatedNormBackwardArgs& args) {
  const int64_t width = args.shape.group_columns();
  ForEachGroup(args.shape, [&](const Group& group) {
    const T* y = Elements<T>(args.y) + group.y;
    const T* z = Elements<T>(args.z) + group.z;
    const T* weights = Elements<T>(args.weight) + group.column;
    const T* d_out = Elements<T>(args.d_out) + group.y;
    T* dy = Elements<T>(args.dy) + group.y;
    T* dz = Elements<T>(args.dz) + group.z;
    const float rstd = args.rstd[group.rstd];
    F8 products = {};
    simd::ForEach8(width, [&](int64_t i, auto lanes) {
      const F8 t =
          simd::Load(d_out + i, lanes) * simd::Load(weights + i, lanes);
      products += t * (Gated(y + i, z + i, lanes) * rstd);
    });
    const float mean = simd::SumLanes(products) / static_cast<float>(width);
    simd::ForEach8(width, [&](int64_t i, auto lanes) {
      const F8 value = simd::Load(y + i, lanes);
      const F8 gate = simd::Load(z + i, lanes);
      const F8 s = simd::Sigmoid(gate);
      const F8 silu = gate * s;
      const F8 t =
          simd::Load(d_out + i, lanes) * simd::Load(weights + i, lanes);
      const F8 dg = rstd * (t - value * silu * rstd * mean);
      simd::Store(dy + i, dg * silu, lanes);
      simd::Store(dz + i, dg * value * (s * (1.0f + gate * (1.0f - s))), lanes);
    });
  });
}

template <typename T>
void Wgrad(const GatedNormBackwardArgs& args) {
  const GatedNormShape& s = args.shape;
  const int64_t width = s.group_columns();
  for (int64_t g = 0; g < s.groups; ++g) {
    simd::ForEach8(width, [&](int64_t i, auto lanes) {
      const int64_t column = g * width + i;
      simd::DoubleSums sums;
      for (int64_t row = 0; row < s.rows; ++row) {
        const int64_t at = row * s.columns + column;
        const F8 gated =
            Gated(Elements<T>(args.y) + at,
                  Elements<T>(args.z) + row * s.z_stride + column, lanes);
        const F8 ghat = gated * args.rstd[row * s.groups + g];
        sums.Add(simd::Load(Elements<T>(args.d_out) + at, lanes) * ghat);
      }
      simd::WriteOrAdd(sums, width - i, args.accumulate, args.dweight + column);
    });
  }
}

}  // namespace

void GatedNormForward(const GatedNormForwardArgs& args,
                      device::Stream& stream) {
  if (RunOnCuda<&GatedNormForward>(args, stream)) return;
  WithElementType(args.out.dtype,
                  [&](auto type) { Forward<decltype(type)>(args); });
}

void GatedNormBackward(const GatedNormBackwardArgs& args,
                       device::Stream& stream) {
  if (RunOnCuda<&GatedNormBackward>(args, stream)) return;
  WithElementType(args.dy.dtype, [&](auto type) {
    // First what reads d_out, which may be dy.
    if (args.dweight != nullptr) Wgrad<decltype(type)>(args);
    Dgrad<decltype(type)>(args);
  });
}

}  // namespace weft::ops
