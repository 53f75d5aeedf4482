// The numbers of random fills, for every device: the same operations, each
// rounded alike, so that all devices get the same bits. Hence no function of a
// mathematical library but fma and sqrt, whose results IEEE 754 defines, and
// each sum of a product is an explicit fma.
#ifndef WEFT_KERNELS_OPS_RANDOM_PHILOX_H_
#define WEFT_KERNELS_OPS_RANDOM_PHILOX_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/uniform.h"

#ifdef __CUDACC__
#define WEFT_EVERY_DEVICE __host__ __device__
#else
#define WEFT_EVERY_DEVICE
#endif

namespace weft::ops {

struct PhiloxWords {
  uint32_t w[4];
};

// Philox4x32-10.
WEFT_EVERY_DEVICE inline PhiloxWords Philox(uint64_t key, uint64_t counter_low,
                                            uint64_t counter_high) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53u;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u;
  constexpr uint32_t kWeyl1 = 0xBB67AE85u;
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  PhiloxWords c = {{static_cast<uint32_t>(counter_low),
                    static_cast<uint32_t>(counter_low >> 32),
                    static_cast<uint32_t>(counter_high),
                    static_cast<uint32_t>(counter_high >> 32)}};
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * c.w[0];
    const uint64_t product1 = kMultiplier1 * c.w[2];
    c = {{static_cast<uint32_t>(product1 >> 32) ^ c.w[1] ^ key0,
          static_cast<uint32_t>(product1),
          static_cast<uint32_t>(product0 >> 32) ^ c.w[3] ^ key1,
          static_cast<uint32_t>(product0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

// log x, within an ulp or two. Requires: x is positive, normal and finite.
//
// x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)]; log(1 + f) by s =
// f / (2 + f) and the polynomial of FreeBSD's msun (e_log.c).
WEFT_EVERY_DEVICE inline double Log(double x) {
  constexpr double kLn2High = 6.93147180369123816490e-01;
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  uint64_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  int exponent = static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u;
  double m;  // in [1, 2)
  std::memcpy(&m, &bits, sizeof(m));
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double p = 1.479819860511658591e-01;
  p = ::fma(p, z, 1.531383769920937332e-01);
  p = ::fma(p, z, 1.818357216161805012e-01);
  p = ::fma(p, z, 2.222219843214978396e-01);
  p = ::fma(p, z, 2.857142874366239149e-01);
  p = ::fma(p, z, 3.999999999940941908e-01);
  p = ::fma(p, z, 6.666666666666735130e-01);
  const double half_f = 0.5 * f;
  const double k = exponent;
  // f - (f^2/2 - s (f^2/2 + p z)) + k ln 2, small parts first.
  const double tail = ::fma(s, ::fma(p, z, half_f * f), k * kLn2Low);
  return ::fma(k, kLn2High, f - ::fma(half_f, f, -tail));
}

// e^x, within two ulps. Requires: |x| <= 700.
//
// x = k ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor polynomial.
WEFT_EVERY_DEVICE inline double Exp(double x) {
  constexpr double kLn2High = 6.93147180369123816490e-01;
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  const int64_t k =
      static_cast<int64_t>(::fma(x, 1.4426950408889634, x < 0 ? -0.5 : 0.5));
  const double r = ::fma(-static_cast<double>(k), kLn2Low,
                         ::fma(-static_cast<double>(k), kLn2High, x));
  double p = 1;
  for (int n = 14; n > 0; --n) p = ::fma(r / n, p, 1.0);
  const uint64_t bits = static_cast<uint64_t>(k + 1023) << 52;
  double scale;  // 2^k
  std::memcpy(&scale, &bits, sizeof(scale));
  return p * scale;
}

// cos and sin of 2 pi (word + 1/2) / 2^32, within two ulps: the angle less the
// nearest multiple of a quarter turn is exact; polynomials of FreeBSD's msun
// (k_cos.c, k_sin.c).
WEFT_EVERY_DEVICE inline void CosSinOfTurn(uint32_t word, double* cos,
                                           double* sin) {
  constexpr double kHalfPi = 1.5707963267948966;
  const int64_t quarter = (int64_t{word} + (int64_t{1} << 29)) >> 30;
  const int64_t rest = int64_t{word} - (quarter << 30);
  const double x = (static_cast<double>(rest) + 0.5) * 0x1p-30 * kHalfPi;
  const double z = x * x;
  double p = 1.58969099521155010221e-10;
  p = ::fma(p, z, -2.50507602534068634195e-08);
  p = ::fma(p, z, 2.75573137070700676789e-06);
  p = ::fma(p, z, -1.98412698298579493134e-04);
  p = ::fma(p, z, 8.33333333332248946124e-03);
  p = ::fma(p, z, -1.66666666666666324348e-01);
  const double s = ::fma(x * z, p, x);
  p = -1.13596475577881948265e-11;
  p = ::fma(p, z, 2.08757232129817482790e-09);
  p = ::fma(p, z, -2.75573143513906633035e-07);
  p = ::fma(p, z, 2.48015872894767294178e-05);
  p = ::fma(p, z, -1.38888888888741095749e-03);
  p = ::fma(p, z, 4.16666666666666019037e-02);
  const double c = ::fma(z * z, p, ::fma(-0.5, z, 1.0));
  const bool swap = (quarter & 1) != 0;
  const double a = swap ? s : c;
  const double b = swap ? c : s;
  *cos = quarter == 1 || quarter == 2 ? -a : a;
  *sin = quarter == 2 || quarter == 3 ? -b : b;
}

// Two standard normals (Box-Muller).
WEFT_EVERY_DEVICE inline void NormalPair(uint32_t a, uint32_t b, double* out) {
  const double unit = (a + 0.5) * 0x1p-32;  // in (0, 1), never either end
  const double radius = ::sqrt(-2.0 * Log(unit));
  double cos;
  double sin;
  CosSinOfTurn(b, &cos, &sin);
  out[0] = radius * cos;
  out[1] = radius * sin;
}

// Four normals, or four uniforms, of the words of a block.
struct NormalBlock {
  float mean;
  float stddev;

  WEFT_EVERY_DEVICE void operator()(const PhiloxWords& words,
                                    float* out) const {
    double standard[4];
    NormalPair(words.w[0], words.w[1], standard);
    NormalPair(words.w[2], words.w[3], standard + 2);
    for (int i = 0; i < 4; ++i) {
      out[i] = static_cast<float>(::fma(
          static_cast<double>(stddev), standard[i], static_cast<double>(mean)));
    }
  }
};

struct UniformBlock {
  float low;
  float high;
  float last;  // the largest float below `high`
  UniformMap map;

  UniformBlock(float low, float high, UniformMap map)
      : low(low), high(high), last(std::nextafter(high, low)), map(map) {}

  WEFT_EVERY_DEVICE float Map(float x) const {
    switch (map) {
      case UniformMap::kIdentity:
        return x;
      case UniformMap::kLog:
        return static_cast<float>(Log(x));
      case UniformMap::kInverseSoftplusOfExp:
        return static_cast<float>(Log(Exp(Exp(x)) - 1));
    }
    return x;
  }

  WEFT_EVERY_DEVICE void operator()(const PhiloxWords& words,
                                    float* out) const {
    for (int i = 0; i < 4; ++i) {
      const float unit = static_cast<float>(words.w[i] >> 8) * 0x1p-24f;
      const float x = ::fmaf(high - low, unit, low);
      out[i] = Map(x < high ? x : last);
    }
  }
};

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_RANDOM_PHILOX_H_
