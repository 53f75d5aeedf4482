// Transcendental functions on eight floats, each within a few units in the last
// place, the same on every machine that runs the binary (no library call).
#ifndef WEFT_KERNELS_OPS_MATH_VEC_MATH_H_
#define WEFT_KERNELS_OPS_MATH_VEC_MATH_H_

#include "kernels/ops/math/simd.h"

namespace weft::ops::simd {

// e^x with a relative error below 1.2e-7; 0 below -87.3, infinity above 88.4,
// NaN for NaN.
//
// x = n ln2 + r with |r| <= ln2 / 2; e^r by the polynomial of Cephes' expf.
inline F8 Exp(F8 x) {
  const F8 lowest = Splat(-87.3f);
  const F8 highest = Splat(89.0f);
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const F8 rounder = Splat(12582912.0f);
  const F8 capped = x > highest ? highest : x;
  const F8 clamped = capped < lowest ? lowest : capped;

  const F8 shifted = clamped * 1.44269504088896341f + rounder;
  const F8 n = shifted - rounder;
  F8 r = clamped - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;

  F8 p = Splat(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * r) * r + r + 1.0f;

  const I8 exponent = ((I8)shifted - (I8)rounder + 127) << 23;
  const F8 result = p * (F8)exponent;
  return x < lowest ? F8{} : result;
}

// 1 / (1 + e^-x)
inline F8 Sigmoid(F8 x) { return 1.0f / (1.0f + Exp(-x)); }

}  // namespace weft::ops::simd

#endif  // WEFT_KERNELS_OPS_MATH_VEC_MATH_H_
