// What ops that take both number formats share: finding the type of a tensor,
// and writing results to it.
#ifndef WEFT_KERNELS_OPS_MATH_ELEMENTS_H_
#define WEFT_KERNELS_OPS_MATH_ELEMENTS_H_

#include <cstdint>

#include "base/bf16.h"
#include "kernels/device/tensor.h"
#include "kernels/ops/math/simd.h"

namespace weft::ops {

template <typename T>
const T* Elements(const device::ConstTensor& tensor) {
  return static_cast<const T*>(tensor.data);
}
template <typename T>
T* Elements(const device::Tensor& tensor) {
  return static_cast<T*>(tensor.data);
}

// Calls f(T()) with the type of an element: float or Bf16.
template <typename F>
void WithElementType(DType dtype, F&& f) {
  if (dtype == DType::kBf16) {
    f(Bf16());
  } else {
    f(float());
  }
}

inline void SetElement(float* to, float value) { *to = value; }
inline void SetElement(Bf16* to, float value) { *to = ToBf16(value); }

// `x` as an element of type T holds it.
inline simd::F8 Rounded(simd::F8 x, float) { return x; }
inline simd::F8 Rounded(simd::F8 x, Bf16) {
  return (simd::F8)(__builtin_convertvector(simd::RoundToBf16(x), simd::U8)
                    << 16);
}

// to = from, converted.
template <typename From, typename To>
void ConvertElements(const From* from, int64_t count, To* to) {
  simd::ForEach8(count, [&](int64_t i, auto lanes) {
    simd::Store(to + i, simd::Load(from + i, lanes), lanes);
  });
}

// The last step of an op whose results are gathered in fp32: to = values, or
// to = to + values as kernels/ops/stream.h defines `accumulate`.
inline void WriteOrAdd(const float* values, int64_t count, bool accumulate,
                       const device::Tensor& to) {
  WithElementType(to.dtype, [&](auto type) {
    using T = decltype(type);
    T* out = Elements<T>(to);
    if (!accumulate) {
      ConvertElements(values, count, out);
      return;
    }
    simd::ForEach8(count, [&](int64_t i, auto lanes) {
      const simd::F8 value = Rounded(simd::Load(values + i, lanes), T());
      simd::Store(out + i, simd::Load(out + i, lanes) + value, lanes);
    });
  });
}

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_MATH_ELEMENTS_H_
