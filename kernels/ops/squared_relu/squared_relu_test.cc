#include "kernels/ops/squared_relu/squared_relu.h"

#include <algorithm>
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

class SquaredRelu : public ::testing::TestWithParam<Case> {
 protected:
  SquaredRelu() : SquaredRelu(GetParam()) {}
  explicit SquaredRelu(const Case& c) : c_(c) {
    x_ = RandomFloats(c_.rows * c_.ffn, 1, 2.0);
    d_out_ = RandomFloats(c_.rows * c_.ffn, 2);
    prob_ = c_.with_prob ? RandomFloats(c_.rows, 3) : Floats(c_.rows, 1.0f);
  }

  const float* prob() const { return c_.with_prob ? prob_.data() : nullptr; }

  Doubles Reference(const Doubles& x, const Doubles& prob) const {
    Doubles out(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double r = std::max(x[i], 0.0);
      out[i] = r * r * prob[i / c_.ffn];
    }
    return out;
  }

  const Case c_;
  Floats x_, d_out_, prob_;
};

TEST_P(SquaredRelu, ForwardMatchesADoubleLoop) {
  Floats out = Unwritten(x_.size());
  SquaredReluForward({c_.rows, c_.ffn, x_.data(), prob(), out.data()},
                     InlineStream());
  EXPECT_TRUE(
      Close(out, Reference(testing::ToDoubles(x_), testing::ToDoubles(prob_)),
            1e-6, 1e-6));
}

TEST_P(SquaredRelu, BackwardIsTheGradient) {
  Floats d_x = Unwritten(x_.size());
  Floats d_prob = Unwritten(c_.rows);
  SquaredReluBackward({c_.rows, c_.ffn, x_.data(), prob(), d_out_.data(),
                       d_x.data(), d_prob.data()},
                      InlineStream());
  const Doubles x = testing::ToDoubles(x_);
  const Doubles p = testing::ToDoubles(prob_);
  const auto of_x = [&](const Doubles& v) {
    return testing::Dot(Reference(v, p), d_out_);
  };
  const auto of_prob = [&](const Doubles& v) {
    return testing::Dot(Reference(x, v), d_out_);
  };
  EXPECT_TRUE(Close(d_x, testing::NumericGradient(of_x, x), 1e-5, 2e-6));
  EXPECT_TRUE(Close(d_prob, testing::NumericGradient(of_prob, p), 1e-5, 2e-6));
}

TEST_P(SquaredRelu, BackwardInPlaceAndWithoutProbGradient) {
  Floats apart = Unwritten(x_.size());
  SquaredReluBackward({c_.rows, c_.ffn, x_.data(), prob(), d_out_.data(),
                       apart.data(), nullptr},
                      InlineStream());
  Floats in_place = x_;
  SquaredReluBackward({c_.rows, c_.ffn, in_place.data(), prob(), d_out_.data(),
                       in_place.data(), nullptr},
                      InlineStream());
  EXPECT_TRUE(SameBits(in_place, apart));
}

TEST_P(SquaredRelu, Bf16IsTheFp32ResultRounded) {
  const Halves x = Rounded(x_);
  const Halves d_out = Rounded(d_out_);
  const Floats wide_x = Widened(x);
  const Floats wide_d_out = Widened(d_out);
  Halves out(x.size());
  Floats wide_out(x.size());
  SquaredReluForward({c_.rows, c_.ffn, x.data(), prob(), out.data()},
                     InlineStream());
  SquaredReluForward({c_.rows, c_.ffn, wide_x.data(), prob(), wide_out.data()},
                     InlineStream());
  EXPECT_TRUE(SameBits(out, Rounded(wide_out)));

  Halves d_x(x.size());
  Floats wide_d_x(x.size());
  Floats d_prob = Unwritten(c_.rows);
  Floats wide_d_prob = Unwritten(c_.rows);
  SquaredReluBackward({c_.rows, c_.ffn, x.data(), prob(), d_out.data(),
                       d_x.data(), d_prob.data()},
                      InlineStream());
  SquaredReluBackward({c_.rows, c_.ffn, wide_x.data(), prob(),
                       wide_d_out.data(), wide_d_x.data(), wide_d_prob.data()},
                      InlineStream());
  EXPECT_TRUE(SameBits(d_x, Rounded(wide_d_x)));
  EXPECT_TRUE(SameBits(d_prob, wide_d_prob));
}

INSTANTIATE_TEST_SUITE_P(Cases, SquaredRelu,
                         ::testing::Values(Case{0, 8, true}, Case{1, 1, true},
                                           Case{3, 8, true}, Case{2, 21, false},
                                           Case{4, 40, true}));

template <typename V>
struct Outputs {
  V out, d_x;
  Floats d_prob;
};

class SquaredReluAtSize : public SquaredRelu {
 protected:
  SquaredReluAtSize()
      : SquaredRelu({testing::MoreOnGpu(GetParam().rows), GetParam().ffn,
                     GetParam().with_prob}) {}

  // Both, on arrays that begin `offset` elements behind aligned addresses.
  template <typename V>
  Outputs<V> Run(const V& x_values, const V& d_out_values,
                 int64_t offset) const {
    const V x = testing::Displaced(x_values, offset);
    const V d_out = testing::Displaced(d_out_values, offset);
    V out = testing::UnwrittenOf<V>(x.size());
    V d_x = testing::UnwrittenOf<V>(x.size());
    Floats d_prob = Unwritten(c_.rows);
    SquaredReluForward(
        {c_.rows, c_.ffn, x.data() + offset, prob(), out.data() + offset},
        InlineStream());
    SquaredReluBackward(
        {c_.rows, c_.ffn, x.data() + offset, prob(), d_out.data() + offset,
         d_x.data() + offset, d_prob.data()},
        InlineStream());
    return {testing::Behind(out, offset), testing::Behind(d_x, offset), d_prob};
  }
};

TEST_P(SquaredReluAtSize, MatchesDoubleLoops) {
  const Outputs<Floats> got = Run(x_, d_out_, 0);
  EXPECT_TRUE(Close(
      got.out, Reference(testing::ToDoubles(x_), testing::ToDoubles(prob_)),
      1e-6, 1e-6));
  Doubles d_x(x_.size());
  Doubles d_prob(c_.rows);
  for (size_t i = 0; i < x_.size(); ++i) {
    const double r = std::max<double>(x_[i], 0.0);
    d_x[i] = static_cast<double>(d_out_[i]) * prob_[i / c_.ffn] * 2 * r;
    d_prob[i / c_.ffn] += d_out_[i] * r * r;
  }
  EXPECT_TRUE(Close(got.d_x, d_x, 1e-6, 1e-6));
  EXPECT_TRUE(Close(got.d_prob, d_prob, 2e-4, 2e-6));
}

TEST_P(SquaredReluAtSize, BitsDependOnValuesAlone) {
  const Halves x = Rounded(x_);
  const Halves d_out = Rounded(d_out_);
  const Outputs<Floats> expected = Run(Widened(x), Widened(d_out), 0);
  for (const int64_t offset : {0, 1}) {
    const Outputs<Floats> again = Run(Widened(x), Widened(d_out), offset);
    EXPECT_TRUE(SameBits(again.out, expected.out));
    EXPECT_TRUE(SameBits(again.d_x, expected.d_x));
    EXPECT_TRUE(SameBits(again.d_prob, expected.d_prob));
    const Outputs<Halves> rounded = Run(x, d_out, offset);
    EXPECT_TRUE(SameBits(rounded.out, Rounded(expected.out)));
    EXPECT_TRUE(SameBits(rounded.d_x, Rounded(expected.d_x)));
    EXPECT_TRUE(SameBits(rounded.d_prob, expected.d_prob));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, SquaredReluAtSize,
                         ::testing::Values(Case{150, 1024, true},
                                           Case{40, 1001, true},
                                           Case{4, 20000, false}));

TEST(SquaredReluTest, WhatIsNotANumberShows) {
  const Floats x = {NAN, -1};
  Floats out = Unwritten(2);
  SquaredReluForward({1, 2, x.data(), nullptr, out.data()}, InlineStream());
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(out[1], 0);
}

}  // namespace
}  // namespace weft::ops
