#include "kernels/ops/adamw/adamw.h"

#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::CloseInNorm;
using testing::Doubles;
using testing::Floats;
using testing::Halves;
using testing::InlineStream;
using testing::RandomFloats;
using testing::RandomHalves;
using testing::SameBits;
using testing::Widened;

constexpr double kLr = 1e-3;
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kEps = 1e-8;

testing::Vector<OptimizerScalars> ScalarsOfStep(int step, double grad_scale) {
  testing::Vector<OptimizerScalars> scalars(1);
  scalars[0].learning_rate = kLr;
  scalars[0].grad_scale = grad_scale;
  scalars[0].bias1 = 1 - std::pow(kBeta1, step);
  scalars[0].bias2 = 1 - std::pow(kBeta2, step);
  return scalars;
}

AdamWArgs ArgsOf(const testing::Vector<OptimizerScalars>& scalars,
                 double weight_decay) {
  AdamWArgs args;
  args.scalars = scalars.data();
  args.beta1 = kBeta1;
  args.beta2 = kBeta2;
  args.eps = kEps;
  args.weight_decay = weight_decay;
  return args;
}

struct State {
  Floats w, m, v;

  void Update(int step, double weight_decay, double grad_scale,
              const Floats& grad) {
    const auto scalars = ScalarsOfStep(step, grad_scale);
    Update(ArgsOf(scalars, weight_decay), grad);
  }
  void Update(AdamWArgs args, const Floats& grad) {
    args.count = static_cast<int64_t>(grad.size());
    args.grad = grad.data();
    args.w = w.data();
    args.m = m.data();
    args.v = v.data();
    AdamW(args, InlineStream());
  }
};

// PyTorch's AdamW, line by line, all in fp64.
struct Oracle {
  Doubles w, m, v;

  void Update(int step, double weight_decay, double grad_scale,
              const Floats& grad) {
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = grad_scale * grad[i];
      w[i] *= 1 - kLr * weight_decay;
      m[i] = kBeta1 * m[i] + (1 - kBeta1) * g;
      v[i] = kBeta2 * v[i] + (1 - kBeta2) * g * g;
      const double denominator =
          std::sqrt(v[i]) / std::sqrt(1 - std::pow(kBeta2, step)) + kEps;
      w[i] -= kLr / (1 - std::pow(kBeta1, step)) * m[i] / denominator;
    }
  }
};

TEST(AdamWTest, FollowsAnFp64OracleOverManySteps) {
  constexpr int64_t kCount = 1003;
  State state = {RandomFloats(kCount, 1), Floats(kCount), Floats(kCount)};
  Oracle oracle = {testing::ToDoubles(state.w), Doubles(kCount),
                   Doubles(kCount)};
  for (int step = 1; step <= 300; ++step) {
    // Gradients of very different sizes.
    Floats grad = RandomFloats(kCount, 100 + step);
    for (int64_t i = 0; i < kCount; ++i) {
      grad[i] *= std::pow(10.0f, static_cast<float>(i % 7 - 5));
    }
    const double weight_decay = 0.1;
    const double grad_scale = step % 2 == 0 ? 0.37 : 1.0;
    state.Update(step, weight_decay, grad_scale, grad);
    oracle.Update(step, weight_decay, grad_scale, grad);
  }
  EXPECT_TRUE(CloseInNorm(state.w, oracle.w, 1e-6));
  EXPECT_TRUE(CloseInNorm(state.m, oracle.m, 1e-6));
  EXPECT_TRUE(CloseInNorm(state.v, oracle.v, 1e-6));
}

TEST(AdamWTest, TheChangeOfAStepIsAccurateToo) {
  constexpr int64_t kCount = 1000;
  // Weights of zero show the change with all its digits.
  State state = {Floats(kCount), Floats(kCount), Floats(kCount)};
  Oracle oracle = {Doubles(kCount), Doubles(kCount), Doubles(kCount)};
  const Floats grad = RandomFloats(kCount, 1, 1e-6);
  state.Update(1, 0, 1, grad);
  oracle.Update(1, 0, 1, grad);
  EXPECT_TRUE(CloseInNorm(state.w, oracle.w, 1e-7));
}

TEST(AdamWTest, DecayIsDecoupledFromTheGradient) {
  State state = {{2.0f}, {0.0f}, {0.0f}};
  state.Update(1, 0.5, 1, {0.0f});
  EXPECT_EQ(state.w[0], static_cast<float>(2.0 * (1 - kLr * 0.5)));
  EXPECT_EQ(state.m[0], 0.0f);
}

TEST(AdamWTest, AnElementDoesNotDependOnWhereTheSegmentIsCut) {
  constexpr int64_t kCount = 61;
  const Floats grad = RandomFloats(kCount, 2);
  const State initial = {RandomFloats(kCount, 1), RandomFloats(kCount, 3),
                         Floats(kCount, 0.3f)};
  State whole = initial;
  whole.Update(3, 0.1, 0.9, grad);
  State cut = initial;
  const int64_t ends[] = {0, 3, 19, 20, 40, kCount};
  const auto scalars = ScalarsOfStep(3, 0.9);
  for (int i = 0; i + 1 < 6; ++i) {
    AdamWArgs args = ArgsOf(scalars, 0.1);
    args.count = ends[i + 1] - ends[i];
    args.grad = grad.data() + ends[i];
    args.w = cut.w.data() + ends[i];
    args.m = cut.m.data() + ends[i];
    args.v = cut.v.data() + ends[i];
    AdamW(args, InlineStream());
  }
  EXPECT_TRUE(SameBits(whole.w, cut.w));
  EXPECT_TRUE(SameBits(whole.m, cut.m));
  EXPECT_TRUE(SameBits(whole.v, cut.v));
}

TEST(AdamWTest, ASkippedStepChangesNothing) {
  for (const int64_t count : {5, 2048}) {
    const State before = {RandomFloats(count, 1), RandomFloats(count, 2),
                          Floats(count, 0.5f)};
    State state = before;
    auto scalars = ScalarsOfStep(1, NAN);
    scalars[0].skip = 1;
    testing::Vector<uint32_t> changed(1);
    AdamWArgs args = ArgsOf(scalars, 0.1);
    args.changed_bits = changed.data();
    state.Update(args, Floats(count, NAN));
    EXPECT_TRUE(SameBits(state.w, before.w));
    EXPECT_TRUE(SameBits(state.m, before.m));
    EXPECT_TRUE(SameBits(state.v, before.v));
    EXPECT_EQ(changed[0], 0);
  }
}

TEST(AdamWTest, ScalesTheLearningRate) {
  State whole = {Floats(9, 1.0f), Floats(9), Floats(9)};
  State half = whole;
  auto scalars = ScalarsOfStep(1, 1);
  AdamWArgs args = ArgsOf(scalars, 0.1);
  args.learning_rate_scale = 0.5;
  half.Update(args, Floats(9, 1.0f));
  args.learning_rate_scale = 1;
  scalars[0].learning_rate = kLr / 2;
  whole.Update(args, Floats(9, 1.0f));
  EXPECT_TRUE(SameBits(half.w, whole.w));
}

TEST(AdamWTest, NoElementsIsFine) {
  State state;
  state.Update(1, 0.1, 1, {});
}

TEST(AdamWTest, TellsWhichBitsOfWeightsChange) {
  for (const int64_t at : {0, 7, 8, 12}) {
    State state = {Floats(13, 1.0f), Floats(13), Floats(13)};
    Floats grad(13);
    testing::Vector<uint32_t> word(1);
    uint32_t& changed = word[0];
    auto scalars = ScalarsOfStep(1, 1);
    AdamWArgs args = ArgsOf(scalars, 0);
    args.changed_bits = &changed;
    state.Update(args, grad);
    EXPECT_EQ(changed, 0) << "nothing has a gradient";
    grad[at] = 1;
    scalars[0].learning_rate = 1e-12;
    state.Update(args, grad);
    EXPECT_EQ(changed, 0) << "what is too small moves nothing";
    scalars[0].learning_rate = kLr;
    state.Update(args, grad);
    EXPECT_NE(changed, 0) << at;
    const uint32_t before = changed;
    grad[at] = 0;
    scalars[0].learning_rate = 0;
    state.Update(args, grad);
    EXPECT_EQ(changed, before) << "is or-ed in";
  }
}

TEST(AdamWTest, ABf16GradientIsTheSameNumber) {
  const Halves gradient = RandomHalves(21, 1);
  const Floats wide = Widened(gradient);
  Floats states[2][3];
  testing::Vector<OptimizerScalars> scalars(1);
  scalars[0].learning_rate = 0.1;
  for (int i = 0; i < 2; ++i) {
    for (Floats& state : states[i]) state = Floats(21, 0.5f);
    AdamWArgs args;
    args.count = 21;
    args.scalars = scalars.data();
    if (i == 0) args.grad = gradient.data();
    if (i == 1) args.grad = wide.data();
    args.w = states[i][0].data();
    args.m = states[i][1].data();
    args.v = states[i][2].data();
    AdamW(args, InlineStream());
  }
  for (int s = 0; s < 3; ++s) {
    EXPECT_TRUE(SameBits(states[0][s], states[1][s])) << s;
  }
}

// Numbers in (-1/2, 1/2) that every machine makes alike.
Floats Numbers(int64_t count, uint32_t seed) {
  Floats values(count);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t word = (static_cast<uint32_t>(i) + seed) * 2654435761u;
    values[i] = static_cast<float>(word >> 8) * 0x1p-24f - 0.5f;
  }
  return values;
}

// An AdamW step of `state`, a bf16 gradient when `narrow`.
void Step(State& state, const Floats& grad, bool narrow, uint32_t* changed) {
  const auto scalars = ScalarsOfStep(2, 0.5);
  AdamWArgs args = ArgsOf(scalars, 0.1);
  const Halves halves = testing::Rounded(grad);
  args.count = grad.size();
  args.grad = grad.data();
  if (narrow) args.grad = halves.data();
  args.w = state.w.data();
  args.m = state.m.data();
  args.v = state.v.data();
  args.changed_bits = changed;
  AdamW(args, InlineStream());
}

TEST(AdamWTest, ALargeSegmentFollowsTheOracleAndTellsAllChangedBits) {
  for (const bool narrow : {false, true}) {
    constexpr int64_t kCount = 1500007;
    State state = {Numbers(kCount, 1), Numbers(kCount, 2), Numbers(kCount, 3)};
    for (float& v : state.v) v = std::abs(v);
    Floats grad = Numbers(kCount, 4);
    if (narrow) grad = Widened(testing::Rounded(grad));
    const Floats before = state.w;
    Oracle oracle = {testing::ToDoubles(state.w), testing::ToDoubles(state.m),
                     testing::ToDoubles(state.v)};
    testing::Vector<uint32_t> changed(1);
    Step(state, grad, narrow, changed.data());
    oracle.Update(2, 0.1, 0.5, grad);
    EXPECT_TRUE(CloseInNorm(state.w, oracle.w, 1e-7));
    EXPECT_TRUE(CloseInNorm(state.m, oracle.m, 1e-7));
    EXPECT_TRUE(CloseInNorm(state.v, oracle.v, 1e-7));
    uint32_t expected = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      uint32_t bits[2];
      std::memcpy(&bits[0], &before[i], sizeof(float));
      std::memcpy(&bits[1], &state.w[i], sizeof(float));
      expected |= bits[0] ^ bits[1];
    }
    EXPECT_EQ(changed[0], expected);
  }
}

TEST(AdamWTest, EveryDeviceComputesTheSameBits) {
  constexpr int64_t kCount = 4099;
  State state = {Numbers(kCount, 1), Numbers(kCount, 2), Numbers(kCount, 3)};
  for (float& v : state.v) v = std::abs(v);
  Step(state, Numbers(kCount, 4), false, nullptr);
  EXPECT_EQ(testing::HashOfBits(state.w), 1161582072129348916u);
  EXPECT_EQ(testing::HashOfBits(state.m), 2987576154153507247u);
  EXPECT_EQ(testing::HashOfBits(state.v), 6112348618149690744u);
}

}  // namespace
}  // namespace weft::ops
