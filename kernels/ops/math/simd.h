// Eight floats at a time, for the loops of ops.
//
// Written with the compilers' vector types rather than left to the optimizer:
// a sum then runs over the same eight lanes in every build, and an element gets
// the same bits wherever it stands in a range (a tail goes through the very
// same instructions, padded).
#ifndef WEFT_KERNELS_OPS_MATH_SIMD_H_
#define WEFT_KERNELS_OPS_MATH_SIMD_H_

#include <cstdint>
#include <cstring>

#include "base/bf16.h"

namespace weft::ops::simd {

inline constexpr int64_t kLanes = 8;

using F8 = float __attribute__((vector_size(32)));
using I8 = int32_t __attribute__((vector_size(32)));
using U8 = uint32_t __attribute__((vector_size(32)));
using H8 = uint16_t __attribute__((vector_size(16)));
using F4 = float __attribute__((vector_size(16)));
using D4 = double __attribute__((vector_size(32)));

inline F8 Splat(float x) { return F8{x, x, x, x, x, x, x, x}; }

inline F8 Max(F8 a, F8 b) { return a > b ? a : b; }

// a * b + c, rounded once. Of a sum of two products a compiler may fuse either
// with the addition, and not the same one everywhere: this says which.
inline F8 MultiplyAdd(F8 a, F8 b, F8 c) {
  F8 sum;
  for (int i = 0; i < kLanes; ++i) sum[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return sum;
}

// How many lanes a step of a loop covers: all of them, or the first `count`.
struct AllLanes {};
struct SomeLanes {
  int64_t count;
};

inline F8 Load(const float* p, AllLanes, float fill = 0.0f) {
  F8 v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
inline F8 Load(const float* p, SomeLanes lanes, float fill = 0.0f) {
  float padded[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) padded[i] = fill;
  for (int64_t i = 0; i < lanes.count; ++i) padded[i] = p[i];
  return Load(padded, AllLanes());
}

inline void Store(float* p, F8 v, AllLanes) { std::memcpy(p, &v, sizeof(v)); }
inline void Store(float* p, F8 v, SomeLanes lanes) {
  for (int64_t i = 0; i < lanes.count; ++i) p[i] = v[i];
}

// The same from and to memory in bf16: a load is exact, a store rounds to the
// nearest even.
inline F8 Load(const Bf16* p, AllLanes, float fill = 0.0f) {
  H8 halves;
  std::memcpy(&halves, p, sizeof(halves));
  return (F8)(__builtin_convertvector(halves, U8) << 16);
}
inline F8 Load(const Bf16* p, SomeLanes lanes, float fill = 0.0f) {
  float padded[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) padded[i] = fill;
  for (int64_t i = 0; i < lanes.count; ++i) padded[i] = ToFloat(p[i]);
  return Load(padded, AllLanes());
}

inline H8 RoundToBf16(F8 v) {
  const U8 bits = (U8)v;
  const U8 rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  const U8 nan = (bits >> 16) | 0x40;
  return __builtin_convertvector(v == v ? rounded : nan, H8);
}
inline void Store(Bf16* p, F8 v, AllLanes) {
  const H8 halves = RoundToBf16(v);
  std::memcpy(p, &halves, sizeof(halves));
}
inline void Store(Bf16* p, F8 v, SomeLanes lanes) {
  const H8 halves = RoundToBf16(v);
  for (int64_t i = 0; i < lanes.count; ++i) p[i] = {halves[i]};
}

// `v` in the covered lanes, `fill` in the others.
inline F8 Keep(F8 v, AllLanes, float fill = 0.0f) { return v; }
inline F8 Keep(F8 v, SomeLanes lanes, float fill = 0.0f) {
  const int32_t count = static_cast<int32_t>(lanes.count);
  const I8 index = {0, 1, 2, 3, 4, 5, 6, 7};
  return index < count ? v : Splat(fill);
}

// Calls body(i, lanes) for i = 0, 8, 16, ... until [0, count) is covered.
template <typename Body>
inline void ForEach8(int64_t count, Body&& body) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, AllLanes());
  if (i < count) body(i, SomeLanes{count - i});
}

// Sums the lanes in a fixed order: halves, then quarters, then the pair.
inline float SumLanes(F8 v) {
  const float a = v[0] + v[4];
  const float b = v[1] + v[5];
  const float c = v[2] + v[6];
  const float d = v[3] + v[7];
  return (a + c) + (b + d);
}

inline float MaxLanes(F8 v) {
  float result = v[0];
  for (int i = 1; i < kLanes; ++i) result = v[i] > result ? v[i] : result;
  return result;
}

// The lower and upper four lanes in fp64.
inline D4 LowerToDouble(F8 v) {
  return __builtin_convertvector((F4{v[0], v[1], v[2], v[3]}), D4);
}
inline D4 UpperToDouble(F8 v) {
  return __builtin_convertvector((F4{v[4], v[5], v[6], v[7]}), D4);
}

}  // namespace weft::ops::simd

#endif  // WEFT_KERNELS_OPS_MATH_SIMD_H_
