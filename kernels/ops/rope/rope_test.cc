#include "kernels/ops/rope/rope.h"

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Close;
using testing::Doubles;
using testing::Floats;
using testing::Halves;
using testing::InlineStream;
using testing::RandomFloats;
using testing::RandomHalves;
using testing::Rounded;
using testing::SameBits;
using testing::Widened;

struct Case {
  int64_t batch;
  int64_t seq;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t rot_dim;
};

constexpr double kTheta = 100.0;

class Rope : public ::testing::TestWithParam<Case> {
 protected:
  Rope() : Rope(GetParam()) {}
  explicit Rope(const Case& c) : c_(c) {
    const int64_t half = c_.rot_dim / 2;
    inv_freq_.resize(half);
    cos_.resize(c_.seq * half);
    sin_.resize(c_.seq * half);
    BuildRopeFrequencies(c_.rot_dim, kTheta, inv_freq_.data());
    BuildRopeTables(c_.seq, c_.rot_dim, inv_freq_.data(), cos_.data(),
                    sin_.data());
  }

  int64_t width() const { return (c_.heads + 2 * c_.kv_heads) * c_.head_dim; }

  RopeArgs Args(Floats& qkv) const {
    return {c_.batch * c_.seq, c_.seq,      c_.heads,
            c_.kv_heads,       c_.head_dim, c_.rot_dim,
            cos_.data(),       sin_.data(), qkv.data()};
  }

  // By complex multiplication: (x[i] + j x[i + half]) e^(j angle).
  Doubles Reference(const Doubles& qkv) const {
    Doubles y = qkv;
    const int64_t half = c_.rot_dim / 2;
    for (int64_t t = 0; t < c_.batch * c_.seq; ++t) {
      for (int64_t h = 0; h < c_.heads + c_.kv_heads; ++h) {
        for (int64_t i = 0; i < half; ++i) {
          const double angle =
              (t % c_.seq) * std::pow(kTheta, -2.0 * i / c_.rot_dim);
          const int64_t re = t * width() + h * c_.head_dim + i;
          const int64_t im = re + half;
          y[re] = qkv[re] * std::cos(angle) - qkv[im] * std::sin(angle);
          y[im] = qkv[re] * std::sin(angle) + qkv[im] * std::cos(angle);
        }
      }
    }
    return y;
  }

  const Case c_;
  Floats inv_freq_, cos_, sin_;
};

TEST_P(Rope, ForwardMatchesADoubleLoopAndLeavesTheRest) {
  const Floats qkv = RandomFloats(c_.batch * c_.seq * width(), 1);
  Floats rotated = qkv;
  RopeForward(Args(rotated), InlineStream());
  const Doubles expected = Reference(testing::ToDoubles(qkv));
  EXPECT_TRUE(Close(rotated, expected, 5e-6, 1e-6));
  for (size_t i = 0; i < qkv.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i) % width();
    const bool is_value = at >= (c_.heads + c_.kv_heads) * c_.head_dim;
    if (is_value || at % c_.head_dim >= c_.rot_dim) {
      EXPECT_EQ(rotated[i], qkv[i]);
    }
  }
}

TEST_P(Rope, BackwardIsTheGradient) {
  const Floats qkv = RandomFloats(c_.batch * c_.seq * width(), 1);
  const Floats dy = RandomFloats(qkv.size(), 2);
  const Doubles expected = testing::NumericGradient(
      [&](const Doubles& x) { return testing::Dot(Reference(x), dy); },
      testing::ToDoubles(qkv));
  Floats dx = dy;
  RopeBackward(Args(dx), InlineStream());
  EXPECT_TRUE(Close(dx, expected, 5e-6, 1e-6));
}

TEST_P(Rope, Bf16IsTheFp32ResultRounded) {
  Halves qkv = RandomHalves(c_.batch * c_.seq * width(), 1);
  Floats wide = Widened(qkv);
  RopeArgs args = Args(wide);
  RopeForward(args, InlineStream());
  args.qkv = qkv.data();
  RopeForward(args, InlineStream());
  EXPECT_TRUE(SameBits(qkv, Rounded(wide)));
}

INSTANTIATE_TEST_SUITE_P(Cases, Rope,
                         ::testing::Values(Case{2, 5, 2, 1, 8, 8},
                                           Case{1, 3, 4, 4, 6, 4},
                                           Case{3, 1, 1, 1, 2, 2},
                                           Case{1, 4, 2, 2, 34, 34},
                                           Case{0, 4, 2, 2, 8, 8}));

Case WithMoreTokens(Case c) {
  c.seq = testing::MoreOnGpu(c.seq);
  return c;
}

class RopeAtSize : public Rope {
 protected:
  RopeAtSize() : Rope(WithMoreTokens(GetParam())) {}

  // Rotates `values` where they begin `offset` elements behind an aligned
  // address.
  template <typename V>
  V Rotated(const V& values, int64_t offset, bool forward) const {
    V qkv = testing::Displaced(values, offset);
    Floats unused;
    RopeArgs args = Args(unused);
    args.qkv = qkv.data() + offset;
    if (forward) {
      RopeForward(args, InlineStream());
    } else {
      RopeBackward(args, InlineStream());
    }
    return testing::Behind(qkv, offset);
  }

  // By the tables.
  Doubles TableReference(const Floats& qkv, double direction) const {
    Doubles y = testing::ToDoubles(qkv);
    const int64_t half = c_.rot_dim / 2;
    for (int64_t t = 0; t < c_.batch * c_.seq; ++t) {
      for (int64_t h = 0; h < c_.heads + c_.kv_heads; ++h) {
        for (int64_t i = 0; i < half; ++i) {
          const double c = cos_[t % c_.seq * half + i];
          const double s = sin_[t % c_.seq * half + i] * direction;
          const int64_t re = t * width() + h * c_.head_dim + i;
          y[re] = qkv[re] * c - qkv[re + half] * s;
          y[re + half] = qkv[re] * s + qkv[re + half] * c;
        }
      }
    }
    return y;
  }
};

TEST_P(RopeAtSize, MatchesADoubleLoop) {
  const Floats qkv = RandomFloats(c_.batch * c_.seq * width(), 1);
  EXPECT_TRUE(Close(Rotated(qkv, 0, true), TableReference(qkv, 1), 1e-6, 1e-6));
  EXPECT_TRUE(
      Close(Rotated(qkv, 0, false), TableReference(qkv, -1), 1e-6, 1e-6));
}

TEST_P(RopeAtSize, BitsDependOnValuesAlone) {
  const Halves narrow = RandomHalves(c_.batch * c_.seq * width(), 1);
  const Floats wide = Widened(narrow);
  for (const bool forward : {true, false}) {
    const Floats expected = Rotated(wide, 0, forward);
    for (const int64_t offset : {0, 1}) {
      EXPECT_TRUE(SameBits(Rotated(wide, offset, forward), expected));
      EXPECT_TRUE(
          SameBits(Rotated(narrow, offset, forward), Rounded(expected)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, RopeAtSize,
                         ::testing::Values(Case{2, 40, 16, 4, 128, 128},
                                           Case{2, 100, 5, 2, 96, 64},
                                           Case{3, 20, 40, 8, 50, 26},
                                           Case{1, 3, 70, 10, 256, 256}));

TEST(RopeTablesTest, FrequenciesAndAnglesAreFp32) {
  Floats inv_freq(2);
  BuildRopeFrequencies(4, 10000.0, inv_freq.data());
  EXPECT_EQ(inv_freq[0], 1.0f);
  EXPECT_EQ(inv_freq[1], 0.01f);
  Floats cos(4);
  Floats sin(4);
  BuildRopeTables(2, 4, inv_freq.data(), cos.data(), sin.data());
  EXPECT_TRUE(SameBits(Floats(cos.begin(), cos.begin() + 2), {1.0f, 1.0f}));
  EXPECT_TRUE(SameBits(Floats(sin.begin(), sin.begin() + 2), {0.0f, 0.0f}));
  EXPECT_EQ(cos[2], static_cast<float>(std::cos(1.0)));
  EXPECT_EQ(sin[3], static_cast<float>(std::sin(double{0.01f})));
}

// By hand, of d = 8, theta = 100 and 40 positions: dim(2) = 1.006, so low = 1,
// and dim(0.25) = 2.812, so high = 3; element 2 lies half way.
TEST(YarnTest, SlowsLowFrequenciesDown) {
  Floats inv_freq(4);
  BuildYarnFrequencies(8, 100.0, {4, 40, 2, 0.25}, inv_freq.data());
  EXPECT_TRUE(Close(inv_freq,
                    {1, std::pow(100.0, -0.25), 0.1 * (0.5 + 0.5 / 4),
                     std::pow(100.0, -0.75) / 4},
                    0, 1e-7));
}

TEST(YarnTest, AFactorOfOneChangesNothing) {
  Floats plain(16);
  Floats yarn(16);
  BuildRopeFrequencies(32, 10000.0, plain.data());
  BuildYarnFrequencies(32, 10000.0, {1, 4096, 32, 1}, yarn.data());
  EXPECT_TRUE(SameBits(yarn, plain));
}

// Both ends fall on dimension 0: all above it are slowed down.
TEST(YarnTest, EqualEndsAreAStep) {
  Floats inv_freq(2);
  BuildYarnFrequencies(4, 10.0, {2, 6.0, 1, 1}, inv_freq.data());
  EXPECT_TRUE(Close(inv_freq, {1, std::pow(10.0, -0.5) / 2}, 0, 1e-7));
}

TEST(RopeTablesTest, MagnitudeScalesBoth) {
  const Floats inv_freq = {0.7f};
  Floats cos(2);
  Floats sin(2);
  BuildRopeTables(2, 2, inv_freq.data(), cos.data(), sin.data(), 1.5);
  const double angle = 0.7f;
  EXPECT_EQ(cos[0], 1.5f);
  EXPECT_EQ(cos[1], static_cast<float>(1.5 * std::cos(angle)));
  EXPECT_EQ(sin[1], static_cast<float>(1.5 * std::sin(angle)));
}

}  // namespace
}  // namespace weft::ops
