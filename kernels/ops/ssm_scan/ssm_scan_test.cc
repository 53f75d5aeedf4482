#include "kernels/ops/ssm_scan/ssm_scan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Close;
using testing::CloseInNorm;
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

// Rows of dt have two other columns behind those of the heads.
constexpr int64_t kOthers = 2;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename V>
struct Inputs {
  V xbc, dt, dt_bias, a_log, d;
};

// The recurrence, token by token.
Doubles Reference(const SsmScanShape& s, const Inputs<Doubles>& in) {
  Doubles y(s.tokens() * s.inner());
  Doubles state(s.head_dim * s.state_size);
  for (int64_t first = 0; first < s.tokens(); first += s.seq) {
    for (int64_t h = 0; h < s.heads; ++h) {
      std::fill(state.begin(), state.end(), 0.0);
      for (int64_t token = first; token < first + s.seq; ++token) {
        const double* x = in.xbc.data() + token * s.columns() + h * s.head_dim;
        const double* b = in.xbc.data() + token * s.columns() + s.inner() +
                          h / s.group_heads() * s.state_size;
        const double* c = b + s.groups * s.state_size;
        const double raw = in.dt[token * s.dt_stride + h] + in.dt_bias[h];
        const double dt =
            std::clamp<double>(std::log1p(std::exp(raw)), s.dt_min, s.dt_max);
        const double decay = std::exp(-dt * std::exp(in.a_log[h]));
        for (int64_t p = 0; p < s.head_dim; ++p) {
          double sum = in.d[h] * x[p];
          for (int64_t n = 0; n < s.state_size; ++n) {
            double& element = state[p * s.state_size + n];
            element = decay * element + dt * x[p] * b[n];
            sum += element * c[n];
          }
          y[token * s.inner() + h * s.head_dim + p] = sum;
        }
      }
    }
  }
  return y;
}

template <typename V>
SsmScanInputs InputsOf(const Inputs<V>& in) {
  return {in.xbc.data(), in.dt.data(), in.dt_bias.data(), in.a_log.data(),
          in.d.data()};
}

template <typename V>
V Forward(const SsmScanShape& s, const Inputs<V>& in) {
  V y = testing::UnwrittenOf<V>(s.tokens() * s.inner());
  Floats scratch = Unwritten(SsmScanForwardScratchElements(s));
  SsmScanForward({s, InputsOf(in), y.data(), scratch.data()}, InlineStream());
  return y;
}

template <typename V>
struct Gradients {
  Floats xbc;
  V dt, dt_bias, a_log, d;
};

// Gradients of parameters are added to those of `initial` unless it is null.
template <typename V>
Gradients<V> Backward(const SsmScanShape& s, const Inputs<V>& in, const V& d_y,
                      const Gradients<V>* initial = nullptr) {
  Gradients<V> out;
  if (initial != nullptr) out = *initial;
  out.xbc = Unwritten(in.xbc.size());
  out.dt = testing::UnwrittenOf<V>(in.dt.size());
  const auto param = [&](V& gradient) {
    if (initial == nullptr) gradient = testing::UnwrittenOf<V>(s.heads);
    return SsmScanParamGrad{gradient.data(), initial != nullptr};
  };
  Floats scratch = Unwritten(SsmScanBackwardScratchElements(s));
  SsmScanBackward(
      {s, InputsOf(in), d_y.data(), out.xbc.data(), out.dt.data(),
       param(out.dt_bias), param(out.a_log), param(out.d), scratch.data()},
      InlineStream());
  return out;
}

Inputs<Doubles> Wide(const Inputs<Floats>& in) {
  return {ToDoubles(in.xbc), ToDoubles(in.dt), ToDoubles(in.dt_bias),
          ToDoubles(in.a_log), ToDoubles(in.d)};
}

Inputs<Floats> RandomInputs(const SsmScanShape& s) {
  Inputs<Floats> in;
  in.xbc = RandomFloats(s.tokens() * s.columns(), 1);
  in.dt = RandomFloats(s.tokens() * s.dt_stride, 2);
  in.dt_bias = RandomFloats(s.heads, 3);
  in.a_log = RandomFloats(s.heads, 4);
  in.d = RandomFloats(s.heads, 5);
  return in;
}

class SsmScan : public ::testing::TestWithParam<SsmScanShape> {
 protected:
  Doubles Gradient(Doubles Inputs<Doubles>::*of) const {
    const Inputs<Doubles> wide = Wide(in_);
    return testing::NumericGradient(
        [&](const Doubles& x) {
          Inputs<Doubles> moved = wide;
          moved.*of = x;
          return testing::Dot(Reference(s_, moved), d_y_);
        },
        wide.*of);
  }

  // Of rows of dt, what belongs to heads.
  template <typename V>
  V Steps(const V& rows) const {
    V steps;
    for (int64_t t = 0; t < s_.tokens(); ++t) {
      const auto begin = rows.begin() + t * s_.dt_stride;
      steps.insert(steps.end(), begin, begin + s_.heads);
    }
    return steps;
  }

  const SsmScanShape s_ = GetParam();
  const Inputs<Floats> in_ = RandomInputs(s_);
  const Floats d_y_ = RandomFloats(s_.tokens() * s_.inner(), 6);
};

TEST_P(SsmScan, ForwardIsTheRecurrence) {
  EXPECT_TRUE(Close(Forward(s_, in_), Reference(s_, Wide(in_)), 2e-5, 5e-6));
}

TEST_P(SsmScan, BackwardIsTheGradient) {
  const Gradients<Floats> out = Backward(s_, in_, d_y_);
  EXPECT_TRUE(Close(out.xbc, Gradient(&Inputs<Doubles>::xbc), 5e-5, 1e-5));
  EXPECT_TRUE(
      Close(Steps(out.dt), Steps(Gradient(&Inputs<Doubles>::dt)), 1e-4, 1e-5));
  EXPECT_TRUE(
      Close(out.dt_bias, Gradient(&Inputs<Doubles>::dt_bias), 2e-4, 1e-5));
  EXPECT_TRUE(Close(out.a_log, Gradient(&Inputs<Doubles>::a_log), 2e-4, 1e-5));
  EXPECT_TRUE(Close(out.d, Gradient(&Inputs<Doubles>::d), 5e-5, 1e-5));
}

TEST_P(SsmScan, ColumnsBesideTheStepsAreNotTouched) {
  const Floats d_dt = Backward(s_, in_, d_y_).dt;
  for (int64_t i = 0; i < static_cast<int64_t>(d_dt.size()); ++i) {
    EXPECT_EQ(std::isnan(d_dt[i]), i % s_.dt_stride >= s_.heads) << i;
  }
}

TEST_P(SsmScan, ASequenceDoesNotDependOnTheOthers) {
  if (s_.batch == 0) return;
  SsmScanShape alone = s_;
  alone.batch = 1;
  const int64_t begin = (s_.batch - 1) * s_.seq;
  Inputs<Floats> last = in_;
  last.xbc = testing::Behind(in_.xbc, begin * s_.columns());
  last.dt = testing::Behind(in_.dt, begin * s_.dt_stride);
  const Floats d_y = testing::Behind(d_y_, begin * s_.inner());
  EXPECT_TRUE(SameBits(Forward(alone, last),
                       testing::Behind(Forward(s_, in_), begin * s_.inner())));
  EXPECT_TRUE(SameBits(
      Backward(alone, last, d_y).xbc,
      testing::Behind(Backward(s_, in_, d_y_).xbc, begin * s_.columns())));
}

TEST_P(SsmScan, ParameterGradientsAccumulateWithOneRounding) {
  Gradients<Floats> initial;
  initial.dt_bias = RandomFloats(s_.heads, 7);
  initial.a_log = RandomFloats(s_.heads, 8);
  initial.d = RandomFloats(s_.heads, 9);
  Gradients<Floats> expected = Backward(s_, in_, d_y_);
  for (int64_t h = 0; h < s_.heads; ++h) {
    expected.dt_bias[h] += initial.dt_bias[h];
    expected.a_log[h] += initial.a_log[h];
    expected.d[h] += initial.d[h];
  }
  const Gradients<Floats> out = Backward(s_, in_, d_y_, &initial);
  EXPECT_TRUE(SameBits(out.dt_bias, expected.dt_bias));
  EXPECT_TRUE(SameBits(out.a_log, expected.a_log));
  EXPECT_TRUE(SameBits(out.d, expected.d));
}

TEST_P(SsmScan, Bf16IsTheFp32ResultRounded) {
  const Inputs<Halves> narrow = {Rounded(in_.xbc), Rounded(in_.dt),
                                 Rounded(in_.dt_bias), Rounded(in_.a_log),
                                 Rounded(in_.d)};
  const Inputs<Floats> wide = {Widened(narrow.xbc), Widened(narrow.dt),
                               Widened(narrow.dt_bias), Widened(narrow.a_log),
                               Widened(narrow.d)};
  EXPECT_TRUE(SameBits(Forward(s_, narrow), Rounded(Forward(s_, wide))));
  const Halves d_y = Rounded(d_y_);
  const Gradients<Halves> out = Backward(s_, narrow, d_y);
  const Gradients<Floats> expected = Backward(s_, wide, Widened(d_y));
  EXPECT_TRUE(SameBits(out.xbc, expected.xbc));
  EXPECT_TRUE(SameBits(Steps(out.dt), Rounded(Steps(expected.dt))));
  EXPECT_TRUE(SameBits(out.dt_bias, Rounded(expected.dt_bias)));
  EXPECT_TRUE(SameBits(out.a_log, Rounded(expected.a_log)));
  EXPECT_TRUE(SameBits(out.d, Rounded(expected.d)));
}

TEST_P(SsmScan, ParametersMayBeFp32BesideBf16) {
  const Halves xbc = Rounded(in_.xbc);
  const Halves dt = Rounded(in_.dt);
  const Inputs<Floats> wide = {Widened(xbc), Widened(dt), in_.dt_bias,
                               in_.a_log, in_.d};
  const SsmScanInputs mixed = {xbc.data(), dt.data(), in_.dt_bias.data(),
                               in_.a_log.data(), in_.d.data()};
  Halves y = testing::UnwrittenOf<Halves>(s_.tokens() * s_.inner());
  Floats scratch = Unwritten(SsmScanForwardScratchElements(s_));
  SsmScanForward({s_, mixed, y.data(), scratch.data()}, InlineStream());
  EXPECT_TRUE(SameBits(y, Rounded(Forward(s_, wide))));

  const Halves d_y = Rounded(d_y_);
  const Gradients<Floats> expected = Backward(s_, wide, Widened(d_y));
  Floats d_xbc = Unwritten(xbc.size());
  Halves d_dt = testing::UnwrittenOf<Halves>(dt.size());
  Floats d_dt_bias = Unwritten(s_.heads);
  Floats d_a_log = Unwritten(s_.heads);
  Floats d_d = Unwritten(s_.heads);
  scratch = Unwritten(SsmScanBackwardScratchElements(s_));
  SsmScanBackward({s_,
                   mixed,
                   d_y.data(),
                   d_xbc.data(),
                   d_dt.data(),
                   {d_dt_bias.data()},
                   {d_a_log.data()},
                   {d_d.data()},
                   scratch.data()},
                  InlineStream());
  EXPECT_TRUE(SameBits(d_xbc, expected.xbc));
  EXPECT_TRUE(SameBits(Steps(d_dt), Rounded(Steps(expected.dt))));
  EXPECT_TRUE(SameBits(d_dt_bias, expected.dt_bias));
  EXPECT_TRUE(SameBits(d_a_log, expected.a_log));
  EXPECT_TRUE(SameBits(d_d, expected.d));
}

TEST_P(SsmScan, AStepThatIsNoNumberIsNotClamped) {
  if (s_.tokens() == 0) return;
  Inputs<Floats> in = in_;
  in.dt[0] = std::numeric_limits<float>::quiet_NaN();
  const Floats y = Forward(s_, in);
  for (int64_t p = 0; p < s_.head_dim; ++p) EXPECT_TRUE(std::isnan(y[p])) << p;
}

TEST_P(SsmScan, GradientsOfFrozenParametersAreLeftOut) {
  Floats d_xbc = Unwritten(in_.xbc.size());
  Floats d_dt = Unwritten(in_.dt.size());
  Floats scratch = Unwritten(SsmScanBackwardScratchElements(s_));
  SsmScanBackwardArgs args;
  args.shape = s_;
  args.in = InputsOf(in_);
  args.d_y = d_y_.data();
  args.d_xbc = d_xbc.data();
  args.d_dt = d_dt.data();
  args.scratch = scratch.data();
  SsmScanBackward(args, InlineStream());
  EXPECT_TRUE(SameBits(d_xbc, Backward(s_, in_, d_y_).xbc));
}

SsmScanShape Shape(int64_t batch, int64_t seq, int64_t heads, int64_t head_dim,
                   int64_t groups, int64_t state_size, int64_t chunk,
                   float dt_min = 0, float dt_max = kInfinity) {
  return {batch,      seq,   heads,           head_dim, groups,
          state_size, chunk, heads + kOthers, dt_min,   dt_max};
}

// No tokens; one; chunks that end with the sequence, and not; a chunk that is
// longer than it; steps that are clamped.
INSTANTIATE_TEST_SUITE_P(
    Shapes, SsmScan,
    ::testing::Values(Shape(0, 4, 2, 3, 1, 2, 2), Shape(1, 1, 1, 1, 1, 1, 1),
                      Shape(2, 6, 4, 3, 2, 5, 3), Shape(2, 7, 4, 3, 2, 5, 3),
                      Shape(1, 11, 3, 9, 1, 8, 100),
                      Shape(1, 8, 6, 4, 3, 4, 4, 0.3f, 1.2f)));

// Chunks, heads and states of more than a tile of the products, all with ragged
// ends.
class SsmScanAtSize : public ::testing::TestWithParam<SsmScanShape> {
 protected:
  // Decays and steps as models have them in their beginning.
  SsmScanAtSize() {
    for (int64_t h = 0; h < s_.heads; ++h) {
      in_.a_log[h] = std::log(1.0f + 15.0f * h / s_.heads);
      in_.dt_bias[h] = -6.0f + 4.0f * h / s_.heads;
    }
  }

  const SsmScanShape s_ = GetParam();
  Inputs<Floats> in_ = RandomInputs(s_);
  const Floats d_y_ = RandomFloats(s_.tokens() * s_.inner(), 6);
};

TEST_P(SsmScanAtSize, ForwardIsTheRecurrence) {
  EXPECT_TRUE(CloseInNorm(Forward(s_, in_), Reference(s_, Wide(in_)), 5e-7));
}

// The chunk's size orders sums and changes nothing else: with chunks of one
// token backward goes through the states alone. Gradients of steps and decays
// are differences of larger sums.
TEST_P(SsmScanAtSize, ChunksChangeNothing) {
  SsmScanShape small = s_;
  small.chunk = 1;
  EXPECT_TRUE(
      CloseInNorm(Forward(s_, in_), ToDoubles(Forward(small, in_)), 1e-6));
  const Gradients<Floats> out = Backward(s_, in_, d_y_);
  const Gradients<Floats> expected = Backward(small, in_, d_y_);
  EXPECT_TRUE(CloseInNorm(out.xbc, ToDoubles(expected.xbc), 1e-6));
  EXPECT_TRUE(CloseInNorm(out.dt_bias, ToDoubles(expected.dt_bias), 3e-5));
  EXPECT_TRUE(CloseInNorm(out.a_log, ToDoubles(expected.a_log), 3e-5));
  EXPECT_TRUE(CloseInNorm(out.d, ToDoubles(expected.d), 1e-6));
}

TEST_P(SsmScanAtSize, SameBitsTwice) {
  EXPECT_TRUE(SameBits(Forward(s_, in_), Forward(s_, in_)));
  const Gradients<Floats> out = Backward(s_, in_, d_y_);
  const Gradients<Floats> again = Backward(s_, in_, d_y_);
  EXPECT_TRUE(SameBits(out.xbc, again.xbc));
  EXPECT_TRUE(SameBits(out.dt_bias, again.dt_bias));
  EXPECT_TRUE(SameBits(out.a_log, again.a_log));
  EXPECT_TRUE(SameBits(out.d, again.d));
}

INSTANTIATE_TEST_SUITE_P(Shapes, SsmScanAtSize,
                         ::testing::Values(Shape(1, testing::MoreOnGpu(200), 8,
                                                 16, 2, 24, 64),
                                           Shape(1, 300, 2, 70, 1, 130, 130)));

}  // namespace
}  // namespace weft::ops
