#include "kernels/ops/random/random.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/ops/random/philox.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Floats;
using testing::InlineStream;
using testing::SameBits;
using testing::Unwritten;

Floats Normal(uint64_t seed, uint64_t stream_id, int64_t begin, int64_t end) {
  Floats out = Unwritten(end - begin);
  RandomNormal({{seed, stream_id, begin, end}, 0.0f, 1.0f, out.data()},
               InlineStream());
  return out;
}

Floats Uniform(uint64_t seed, uint64_t stream_id, int64_t begin, int64_t end) {
  Floats out = Unwritten(end - begin);
  RandomUniform({{seed, stream_id, begin, end}, 0.0f, 1.0f, out.data()},
                InlineStream());
  return out;
}

// Mean of x^power.
double Moment(const Floats& x, int power) {
  double sum = 0;
  for (const float v : x) sum += std::pow(static_cast<double>(v), power);
  return sum / x.size();
}

double Correlation(const Floats& a, const Floats& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum / a.size();
}

// The words of the first block with key and counter zero, as published with
// the reference implementation: 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
TEST(RandomTest, IsPhilox) {
  const Floats expected = {0x6627e8p-24f, 0xe169c5p-24f, 0xbc57acp-24f,
                           0x9b00dbp-24f};
  EXPECT_TRUE(SameBits(Uniform(0, 0, 0, 4), expected));
}

// The published vector with all bits of key and counter set reaches every
// word; only its key and the upper counter can be set here.
TEST(RandomTest, SeedAndStreamAndIndexAllMatter) {
  const Floats base = Normal(1, 1, 0, 100);
  for (const Floats& other :
       {Normal(2, 1, 0, 100), Normal(1, 2, 0, 100), Normal(1, 1, 100, 200),
        Normal(1 + (uint64_t{1} << 32), 1, 0, 100),
        Normal(1, 1 + (uint64_t{1} << 32), 0, 100),
        Normal(1, 1, int64_t{1} << 40, (int64_t{1} << 40) + 100)}) {
    for (int64_t i = 0; i < 100; ++i) EXPECT_NE(base[i], other[i]);
  }
}

TEST(RandomTest, AnyCutGivesTheSameElements) {
  const Floats normal = Normal(7, 9, 0, 50);
  const Floats uniform = Uniform(7, 9, 0, 50);
  for (int64_t begin = 0; begin < 50; ++begin) {
    for (int64_t end = begin; end <= 50; ++end) {
      EXPECT_TRUE(
          SameBits(Normal(7, 9, begin, end),
                   Floats(normal.begin() + begin, normal.begin() + end)));
      EXPECT_TRUE(
          SameBits(Uniform(7, 9, begin, end),
                   Floats(uniform.begin() + begin, uniform.begin() + end)));
    }
  }
}

TEST(RandomTest, NormalHasTheMomentsOfANormal) {
  constexpr int64_t kCount = 400000;
  const Floats x = Normal(3, 4, 0, kCount);
  EXPECT_NEAR(Moment(x, 1), 0, 0.008);
  EXPECT_NEAR(Moment(x, 2), 1, 0.012);
  EXPECT_NEAR(Moment(x, 3), 0, 0.03);
  EXPECT_NEAR(Moment(x, 4), 3, 0.08);
  int64_t inside = 0;
  for (const float v : x) inside += std::abs(v) < 1.0f;
  EXPECT_NEAR(static_cast<double>(inside) / kCount, 0.6827, 0.004);
  EXPECT_NEAR(Correlation(x, Normal(3, 5, 0, kCount)), 0, 0.008);
  for (const int lag : {1, 2, 3, 4}) {
    EXPECT_NEAR(Correlation(Floats(x.begin(), x.end() - lag),
                            Floats(x.begin() + lag, x.end())),
                0, 0.008)
        << lag;
  }
}

TEST(RandomTest, MeanAndDeviationScaleTheStandardNormal) {
  const Floats standard = Normal(1, 2, 0, 1000);
  Floats x = Unwritten(1000);
  RandomNormal({{1, 2, 0, 1000}, 5.0f, 0.5f, x.data()}, InlineStream());
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_NEAR(x[i], 5 + 0.5 * standard[i], 1e-6);
  }
}

TEST(RandomTest, UniformCoversItsRangeButNotItsEnd) {
  constexpr int64_t kCount = 400000;
  Floats x = Unwritten(kCount);
  RandomUniform({{1, 2, 0, kCount}, -2.0f, 3.0f, x.data()}, InlineStream());
  float low = 3;
  float high = -2;
  for (const float v : x) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  EXPECT_GE(low, -2.0f);
  EXPECT_LT(low, -1.999f);
  EXPECT_LT(high, 3.0f);
  EXPECT_GT(high, 2.999f);
  EXPECT_NEAR(Moment(x, 1), 0.5, 0.012);

  // A range so narrow that rounding would reach its end.
  const float end = std::nextafter(1.0f, 2.0f);
  RandomUniform({{1, 2, 0, kCount}, 1.0f, end, x.data()}, InlineStream());
  for (const float v : x) ASSERT_EQ(v, 1.0f);
}

Floats MappedUniforms(float low, float high, UniformMap map) {
  Floats x = Unwritten(1000);
  RandomUniform({{1, 2, 0, 1000}, low, high, x.data(), map}, InlineStream());
  return x;
}

TEST(RandomTest, WhatIsMadeOfUniformsIsAFunctionOfThem) {
  Floats uniform = MappedUniforms(1, 16, UniformMap::kIdentity);
  Floats made = MappedUniforms(1, 16, UniformMap::kLog);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FLOAT_EQ(made[i], std::log(static_cast<double>(uniform[i])));
  }
  // Steps of 0.001 to 0.1, before softplus.
  uniform =
      MappedUniforms(std::log(1e-3f), std::log(0.1f), UniformMap::kIdentity);
  made = MappedUniforms(std::log(1e-3f), std::log(0.1f),
                        UniformMap::kInverseSoftplusOfExp);
  for (int i = 0; i < 1000; ++i) {
    const double step = std::log1p(std::exp(static_cast<double>(made[i])));
    EXPECT_NEAR(step / std::exp(static_cast<double>(uniform[i])), 1, 1e-6);
  }
}

TEST(RandomTest, StreamIdsAreFnv1a) {
  EXPECT_EQ(RandomStreamId("", 0), 0xcbf29ce484222325ull);
  EXPECT_EQ(RandomStreamId("a", 1), 0xaf63dc4c8601ec8cull);
  EXPECT_EQ(RandomStreamId("foobar", 6), 0x85944171f73967e8ull);
}

// Against the definition in long double.
TEST(RandomTest, NormalsAreThoseOfBoxAndMuller) {
  constexpr long double kTwoPi = 6.283185307179586476925L;
  double worst = 0;
  uint32_t a = 0;
  for (int i = 0; i < 300000; ++i, a += 2654435761u) {
    // Also both ends and the quarters of a turn.
    const uint32_t b =
        i < 64 ? (i % 8) * 0x20000000u + i / 8 - 4 : a * 747796405u;
    const uint32_t first = i == 1 ? 0xffffffffu : a;
    double pair[2];
    NormalPair(first, b, pair);
    const long double radius =
        std::sqrt(-2 * std::log((first + 0.5L) * 0x1p-32L));
    const long double angle = kTwoPi * ((b + 0.5L) * 0x1p-32L);
    const long double error =
        std::max(std::abs(pair[0] - radius * std::cos(angle)),
                 std::abs(pair[1] - radius * std::sin(angle)));
    worst = std::max(worst, static_cast<double>(error / radius));
  }
  EXPECT_LT(worst, 5e-16);
}

TEST(RandomTest, EveryDeviceMakesTheSameBits) {
  constexpr int64_t kBegin = 1234567;
  constexpr int64_t kCount = 1000003;
  EXPECT_EQ(testing::HashOfBits(Normal(11, 12, kBegin, kBegin + kCount)),
            12821893664461142042u);
  Floats uniform = Unwritten(kCount);
  RandomUniform(
      {{11, 12, kBegin, kBegin + kCount}, -0.3f, 1.7f, uniform.data()},
      InlineStream());
  EXPECT_EQ(testing::HashOfBits(uniform), 9610008579104605136u);
  EXPECT_EQ(testing::HashOfBits(
                MappedUniforms(-7, 2, UniformMap::kInverseSoftplusOfExp)),
            4993734049995684492u);
}

}  // namespace
}  // namespace weft::ops
