#include "kernels/ops/swiglu/swiglu.h"

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
using testing::Rounded;
using testing::SameBits;
using testing::Unwritten;
using testing::Widened;

struct Case {
  int64_t rows;
  int64_t ffn;
  bool with_prob;
};

class Swiglu : public ::testing::TestWithParam<Case> {
 protected:
  Swiglu() : Swiglu(GetParam()) {}
  explicit Swiglu(const Case& c) : c_(c) {
    gate_up_ = RandomFloats(c_.rows * 2 * c_.ffn, 1, 2.0);
    d_out_ = RandomFloats(c_.rows * c_.ffn, 2);
    prob_ = c_.with_prob ? RandomFloats(c_.rows, 3) : Floats(c_.rows, 1.0f);
  }

  const float* prob() const { return c_.with_prob ? prob_.data() : nullptr; }

  Doubles Reference(const Doubles& gate_up, const Doubles& prob) const {
    Doubles out(c_.rows * c_.ffn);
    for (int64_t i = 0; i < c_.rows * c_.ffn; ++i) {
      const int64_t row = i / c_.ffn;
      const double g = gate_up[row * 2 * c_.ffn + i % c_.ffn];
      const double u = gate_up[row * 2 * c_.ffn + c_.ffn + i % c_.ffn];
      out[i] = g / (1 + std::exp(-g)) * u * prob[row];
    }
    return out;
  }

  const Case c_;
  Floats gate_up_, d_out_, prob_;
};

TEST_P(Swiglu, ForwardMatchesADoubleLoop) {
  Floats out = Unwritten(c_.rows * c_.ffn);
  SwigluForward({c_.rows, c_.ffn, gate_up_.data(), prob(), out.data()},
                InlineStream());
  EXPECT_TRUE(Close(
      out, Reference(testing::ToDoubles(gate_up_), testing::ToDoubles(prob_)),
      1e-6, 1e-6));
}

TEST_P(Swiglu, BackwardIsTheGradient) {
  Floats d_gate_up = Unwritten(gate_up_.size());
  Floats d_prob = Unwritten(c_.rows);
  SwigluBackward({c_.rows, c_.ffn, gate_up_.data(), prob(), d_out_.data(),
                  d_gate_up.data(), d_prob.data()},
                 InlineStream());
  const Doubles x = testing::ToDoubles(gate_up_);
  const Doubles p = testing::ToDoubles(prob_);
  const auto of_gate_up = [&](const Doubles& v) {
    return testing::Dot(Reference(v, p), d_out_);
  };
  const auto of_prob = [&](const Doubles& v) {
    return testing::Dot(Reference(x, v), d_out_);
  };
  EXPECT_TRUE(
      Close(d_gate_up, testing::NumericGradient(of_gate_up, x), 2e-6, 2e-6));
  EXPECT_TRUE(Close(d_prob, testing::NumericGradient(of_prob, p), 1e-5, 2e-6));
}

TEST_P(Swiglu, BackwardInPlaceAndWithoutProbGradient) {
  Floats apart = Unwritten(gate_up_.size());
  SwigluBackward({c_.rows, c_.ffn, gate_up_.data(), prob(), d_out_.data(),
                  apart.data(), nullptr},
                 InlineStream());
  Floats in_place = gate_up_;
  SwigluBackward({c_.rows, c_.ffn, in_place.data(), prob(), d_out_.data(),
                  in_place.data(), nullptr},
                 InlineStream());
  EXPECT_TRUE(SameBits(in_place, apart));
}

TEST_P(Swiglu, Bf16IsTheFp32ResultRounded) {
  const Halves gate_up = Rounded(gate_up_);
  const Halves d_out = Rounded(d_out_);
  const Floats wide_gate_up = Widened(gate_up);
  const Floats wide_d_out = Widened(d_out);
  Halves out(d_out.size());
  Floats wide_out(d_out.size());
  SwigluForward({c_.rows, c_.ffn, gate_up.data(), prob(), out.data()},
                InlineStream());
  SwigluForward({c_.rows, c_.ffn, wide_gate_up.data(), prob(), wide_out.data()},
                InlineStream());
  EXPECT_TRUE(SameBits(out, Rounded(wide_out)));

  Halves d_gate_up(gate_up.size());
  Floats wide_d_gate_up(gate_up.size());
  Floats d_prob = Unwritten(c_.rows);
  Floats wide_d_prob = Unwritten(c_.rows);
  SwigluBackward({c_.rows, c_.ffn, gate_up.data(), prob(), d_out.data(),
                  d_gate_up.data(), d_prob.data()},
                 InlineStream());
  SwigluBackward({c_.rows, c_.ffn, wide_gate_up.data(), prob(),
                  wide_d_out.data(), wide_d_gate_up.data(), wide_d_prob.data()},
                 InlineStream());
  EXPECT_TRUE(SameBits(d_gate_up, Rounded(wide_d_gate_up)));
  EXPECT_TRUE(SameBits(d_prob, wide_d_prob));
}

INSTANTIATE_TEST_SUITE_P(Cases, Swiglu,
                         ::testing::Values(Case{0, 8, true}, Case{1, 1, true},
                                           Case{3, 8, true}, Case{2, 21, false},
                                           Case{4, 40, true}));

template <typename V>
struct Outputs {
  V out, d_gate_up;
  Floats d_prob;
};

class SwigluAtSize : public Swiglu {
 protected:
  SwigluAtSize()
      : Swiglu({testing::MoreOnGpu(GetParam().rows), GetParam().ffn,
                GetParam().with_prob}) {}

  // Both, on arrays that begin `offset` elements behind aligned addresses.
  template <typename V>
  Outputs<V> Run(const V& gate_up_values, const V& d_out_values,
                 int64_t offset) const {
    const V gate_up = testing::Displaced(gate_up_values, offset);
    const V d_out = testing::Displaced(d_out_values, offset);
    V out = testing::UnwrittenOf<V>(d_out.size());
    V d_gate_up = testing::UnwrittenOf<V>(gate_up.size());
    Floats d_prob = Unwritten(c_.rows);
    SwigluForward(
        {c_.rows, c_.ffn, gate_up.data() + offset, prob(), out.data() + offset},
        InlineStream());
    SwigluBackward(
        {c_.rows, c_.ffn, gate_up.data() + offset, prob(),
         d_out.data() + offset, d_gate_up.data() + offset, d_prob.data()},
        InlineStream());
    return {testing::Behind(out, offset), testing::Behind(d_gate_up, offset),
            d_prob};
  }
};

TEST_P(SwigluAtSize, MatchesDoubleLoops) {
  const Outputs<Floats> got = Run(gate_up_, d_out_, 0);
  EXPECT_TRUE(
      Close(got.out,
            Reference(testing::ToDoubles(gate_up_), testing::ToDoubles(prob_)),
            1e-6, 1e-6));
  Doubles d_gate_up(gate_up_.size());
  Doubles d_prob(c_.rows);
  for (int64_t i = 0; i < c_.rows * c_.ffn; ++i) {
    const int64_t row = i / c_.ffn;
    const int64_t gate = row * 2 * c_.ffn + i % c_.ffn;
    const double g = gate_up_[gate];
    const double u = gate_up_[gate + c_.ffn];
    const double s = 1 / (1 + std::exp(-g));
    const double d = d_out_[i];
    d_gate_up[gate] = d * prob_[row] * u * s * (1 + g * (1 - s));
    d_gate_up[gate + c_.ffn] = d * prob_[row] * g * s;
    d_prob[row] += d * g * s * u;
  }
  EXPECT_TRUE(Close(got.d_gate_up, d_gate_up, 3e-6, 2e-6));
  EXPECT_TRUE(Close(got.d_prob, d_prob, 1e-4, 2e-6));
}

TEST_P(SwigluAtSize, BitsDependOnValuesAlone) {
  const Halves gate_up = Rounded(gate_up_);
  const Halves d_out = Rounded(d_out_);
  const Floats wide_gate_up = Widened(gate_up);
  const Floats wide_d_out = Widened(d_out);
  const Outputs<Floats> expected = Run(wide_gate_up, wide_d_out, 0);
  for (const int64_t offset : {0, 1}) {
    const Outputs<Floats> again = Run(wide_gate_up, wide_d_out, offset);
    EXPECT_TRUE(SameBits(again.out, expected.out));
    EXPECT_TRUE(SameBits(again.d_gate_up, expected.d_gate_up));
    EXPECT_TRUE(SameBits(again.d_prob, expected.d_prob));
    const Outputs<Halves> rounded = Run(gate_up, d_out, offset);
    EXPECT_TRUE(SameBits(rounded.out, Rounded(expected.out)));
    EXPECT_TRUE(SameBits(rounded.d_gate_up, Rounded(expected.d_gate_up)));
    EXPECT_TRUE(SameBits(rounded.d_prob, expected.d_prob));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, SwigluAtSize,
                         ::testing::Values(Case{150, 1024, true},
                                           Case{40, 1001, true},
                                           Case{4, 20000, false},
                                           Case{500, 24, true}));

TEST(SwigluTest, SaturatedGatesStayFinite) {
  const Floats gate_up = {-500, 500, -90, 1, 2, 3};
  Floats out = Unwritten(3);
  SwigluForward({1, 3, gate_up.data(), nullptr, out.data()}, InlineStream());
  EXPECT_TRUE(Close(out, {0, 1000, 0}, 1e-30, 0));
  const Floats d_out = {1, 1, 1};
  Floats d = Unwritten(6);
  SwigluBackward({1, 3, gate_up.data(), nullptr, d_out.data(), d.data()},
                 InlineStream());
  EXPECT_TRUE(Close(d, {0, 2, 0, 0, 500, 0}, 1e-30, 0));
}

}  // namespace
}  // namespace weft::ops
