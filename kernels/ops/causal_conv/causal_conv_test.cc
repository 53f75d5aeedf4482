#include "kernels/ops/causal_conv/causal_conv.h"

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
using testing::ToDoubles;
using testing::Unwritten;
using testing::Widened;

// Channels lie behind two other columns of rows that have three more.
constexpr int64_t kOffset = 2;
constexpr int64_t kOthers = 5;

struct Case {
  int64_t batch;
  int64_t seq;
  int64_t channels;
  int64_t width;
  bool bias;
};

CausalConvShape ShapeOf(const Case& c) {
  return {c.batch, c.seq, c.channels, c.width, c.channels + kOthers};
}

struct DoubleInputs {
  Doubles x, weight, bias;
};

// The channels of all tokens.
Doubles Reference(const CausalConvShape& s, const DoubleInputs& in) {
  Doubles y(s.tokens() * s.channels);
  for (int64_t token = 0; token < s.tokens(); ++token) {
    for (int64_t c = 0; c < s.channels; ++c) {
      double pre = in.bias[c];
      for (int64_t back = 0; back < s.width && back <= token % s.seq; ++back) {
        pre += in.weight[c * s.width + s.width - 1 - back] *
               in.x[(token - back) * s.stride + kOffset + c];
      }
      y[token * s.channels + c] = pre / (1 + std::exp(-pre));
    }
  }
  return y;
}

template <typename V>
struct Inputs {
  V x, weight, bias;
  bool has_bias;
  Floats dy;
};

template <typename V>
struct Outputs {
  V y, dx, dweight, dbias;
};

// Both ops; gradients of parameters are added to `initial` unless it is null.
template <typename V>
Outputs<V> RunBoth(const CausalConvShape& s, const Inputs<V>& in,
                   const Outputs<V>* initial = nullptr) {
  Outputs<V> out;
  out.y = testing::UnwrittenOf<V>(s.tokens() * s.channels);
  out.dx = testing::UnwrittenOf<V>(in.x.size());
  out.dweight = initial != nullptr ? initial->dweight
                                   : testing::UnwrittenOf<V>(in.weight.size());
  out.dbias = initial != nullptr ? initial->dbias
                                 : testing::UnwrittenOf<V>(in.bias.size());
  const ConstTensor bias =
      in.has_bias ? ConstTensor(in.bias.data()) : ConstTensor();
  CausalConvForward(
      {s, in.x.data() + kOffset, in.weight.data(), bias, out.y.data()},
      InlineStream());
  Floats dy = in.dy;
  const bool accumulate = initial != nullptr;
  CausalConvBackward({s, in.x.data() + kOffset, in.weight.data(), bias,
                      dy.data(), out.dx.data() + kOffset, out.dweight.data(),
                      accumulate, out.dbias.data(), accumulate},
                     InlineStream());
  return out;
}

class CausalConv : public ::testing::TestWithParam<Case> {
 protected:
  CausalConv() {
    in_.x = RandomFloats(s_.tokens() * s_.stride, 1);
    in_.weight = RandomFloats(s_.channels * s_.width, 2, 0.7);
    in_.bias = RandomFloats(s_.channels, 3);
    in_.has_bias = GetParam().bias;
    in_.dy = RandomFloats(s_.tokens() * s_.channels, 4);
  }

  DoubleInputs Wide() const {
    DoubleInputs wide = {ToDoubles(in_.x), ToDoubles(in_.weight),
                         ToDoubles(in_.bias)};
    if (!in_.has_bias) wide.bias.assign(s_.channels, 0);
    return wide;
  }

  // d dot(y, dy) by one of the inputs.
  Doubles Gradient(Doubles DoubleInputs::*of) const {
    const DoubleInputs wide = Wide();
    return testing::NumericGradient(
        [&](const Doubles& x) {
          DoubleInputs moved = wide;
          moved.*of = x;
          return testing::Dot(Reference(s_, moved), in_.dy);
        },
        wide.*of);
  }

  const CausalConvShape s_ = ShapeOf(GetParam());
  Inputs<Floats> in_;
};

TEST_P(CausalConv, ForwardMatchesADoubleLoop) {
  EXPECT_TRUE(Close(RunBoth(s_, in_).y, Reference(s_, Wide()), 2e-6, 2e-6));
}

TEST_P(CausalConv, BackwardIsTheGradient) {
  const Outputs<Floats> out = RunBoth(s_, in_);
  Floats dx = out.dx;
  for (int64_t i = 0; i < static_cast<int64_t>(dx.size()); ++i) {
    const int64_t column = i % s_.stride - kOffset;
    if (column >= 0 && column < s_.channels) continue;
    EXPECT_TRUE(std::isnan(dx[i])) << "column " << column << " is not its own";
    dx[i] = 0;
  }
  EXPECT_TRUE(Close(dx, Gradient(&DoubleInputs::x), 5e-6, 5e-6));
  EXPECT_TRUE(Close(out.dweight, Gradient(&DoubleInputs::weight), 2e-5, 5e-6));
  EXPECT_TRUE(Close(out.dbias, Gradient(&DoubleInputs::bias), 2e-5, 5e-6));
}

TEST_P(CausalConv, ParameterGradientsAccumulateWithOneRounding) {
  Outputs<Floats> initial;
  initial.dweight = RandomFloats(in_.weight.size(), 5);
  initial.dbias = RandomFloats(in_.bias.size(), 6);
  Outputs<Floats> expected = RunBoth(s_, in_);
  for (size_t i = 0; i < expected.dweight.size(); ++i) {
    expected.dweight[i] += initial.dweight[i];
  }
  for (size_t i = 0; i < expected.dbias.size(); ++i) {
    expected.dbias[i] += initial.dbias[i];
  }
  const Outputs<Floats> out = RunBoth(s_, in_, &initial);
  EXPECT_TRUE(SameBits(out.dweight, expected.dweight));
  EXPECT_TRUE(SameBits(out.dbias, expected.dbias));
}

TEST_P(CausalConv, ASequenceDoesNotDependOnTheOthers) {
  if (s_.batch == 0) return;
  CausalConvShape alone = s_;
  alone.batch = 1;
  const int64_t begin = (s_.batch - 1) * s_.seq;
  Inputs<Floats> last = in_;
  last.x = testing::Behind(in_.x, begin * s_.stride);
  last.dy = testing::Behind(in_.dy, begin * s_.channels);
  const Outputs<Floats> of_all = RunBoth(s_, in_);
  const Outputs<Floats> of_last = RunBoth(alone, last);
  EXPECT_TRUE(
      SameBits(of_last.y, testing::Behind(of_all.y, begin * s_.channels)));
  EXPECT_TRUE(
      SameBits(of_last.dx, testing::Behind(of_all.dx, begin * s_.stride)));
}

TEST_P(CausalConv, Bf16IsTheFp32ResultRounded) {
  Inputs<Halves> narrow = {Rounded(in_.x), Rounded(in_.weight),
                           Rounded(in_.bias), in_.has_bias, in_.dy};
  const Outputs<Halves> out = RunBoth(s_, narrow);
  const Outputs<Floats> wide =
      RunBoth(s_, Inputs<Floats>{Widened(narrow.x), Widened(narrow.weight),
                                 Widened(narrow.bias), in_.has_bias, in_.dy});
  EXPECT_TRUE(SameBits(out.y, Rounded(wide.y)));
  EXPECT_TRUE(SameBits(out.dweight, Rounded(wide.dweight)));
  EXPECT_TRUE(SameBits(out.dbias, Rounded(wide.dbias)));
  for (int64_t i = 0; i < s_.tokens(); ++i) {
    const auto channels = [&](const Halves& rows) {
      const auto begin = rows.begin() + i * s_.stride + kOffset;
      return Halves(begin, begin + s_.channels);
    };
    EXPECT_TRUE(SameBits(channels(out.dx), channels(Rounded(wide.dx))));
  }
}

TEST_P(CausalConv, GradientsOfFrozenParametersAreLeftOut) {
  Floats dy = in_.dy;
  Floats dx = Unwritten(in_.x.size());
  CausalConvBackwardArgs args;
  args.shape = s_;
  args.x = in_.x.data() + kOffset;
  args.weight = in_.weight.data();
  if (in_.has_bias) args.bias = in_.bias.data();
  args.dy = dy.data();
  args.dx = dx.data() + kOffset;
  CausalConvBackward(args, InlineStream());
  EXPECT_TRUE(SameBits(dx, RunBoth(s_, in_).dx));
}

INSTANTIATE_TEST_SUITE_P(Cases, CausalConv,
                         ::testing::Values(Case{0, 5, 3, 4, true},
                                           Case{1, 1, 1, 2, true},
                                           Case{2, 7, 11, 4, true},
                                           Case{3, 2, 8, 4, false},
                                           Case{2, 40, 21, 16, true},
                                           // More than a block of channels.
                                           Case{1, 3, 300, 4, true}));

}  // namespace
}  // namespace weft::ops
