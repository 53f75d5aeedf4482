#include "kernels/ops/sgd/sgd.h"

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::CloseInNorm;
using testing::Doubles;
using testing::Floats;
using testing::InlineStream;
using testing::RandomFloats;
using testing::SameBits;

constexpr double kLr = 1e-2;

testing::Vector<OptimizerScalars> Scalars(double lr, double grad_scale) {
  testing::Vector<OptimizerScalars> scalars(1);
  scalars[0].learning_rate = lr;
  scalars[0].grad_scale = grad_scale;
  return scalars;
}

struct State {
  Floats w, m;  // m is empty without momentum

  void Update(SgdArgs args, const Floats& grad, double grad_scale = 1) {
    const auto scalars = Scalars(kLr, grad_scale);
    args.scalars = scalars.data();
    Run(args, grad);
  }
  void Run(SgdArgs args, const Floats& grad) {
    args.count = static_cast<int64_t>(grad.size());
    args.grad = grad.data();
    args.w = w.data();
    args.m = m.empty() ? nullptr : m.data();
    Sgd(args, InlineStream());
  }
};

// torch.optim.SGD with the decay of AdamW, line by line, all in fp64.
struct Oracle {
  Doubles w, m;

  void Update(const SgdArgs& args, const Floats& grad, double grad_scale) {
    for (size_t i = 0; i < w.size(); ++i) {
      double g = grad_scale * grad[i];
      w[i] *= 1 - kLr * args.weight_decay;
      if (!m.empty()) g = m[i] = args.momentum * m[i] + g;
      w[i] -= kLr * g;
    }
  }
};

class SgdTest : public ::testing::TestWithParam<double> {};

TEST_P(SgdTest, FollowsAnFp64OracleOverManySteps) {
  constexpr int64_t kCount = 1003;
  const int64_t kept = GetParam() > 0 ? kCount : 0;
  State state = {RandomFloats(kCount, 1), Floats(kept)};
  Oracle oracle = {testing::ToDoubles(state.w), Doubles(kept)};
  for (int step = 1; step <= 300; ++step) {
    // Gradients of very different sizes.
    Floats grad = RandomFloats(kCount, 100 + step);
    for (int64_t i = 0; i < kCount; ++i) {
      grad[i] *= std::pow(10.0f, static_cast<float>(i % 7 - 5));
    }
    SgdArgs args;
    args.momentum = GetParam();
    args.weight_decay = 0.1;
    const double grad_scale = step % 2 == 0 ? 0.37 : 1.0;
    state.Update(args, grad, grad_scale);
    oracle.Update(args, grad, grad_scale);
  }
  EXPECT_TRUE(CloseInNorm(state.w, oracle.w, 1e-6));
  EXPECT_TRUE(CloseInNorm(state.m, oracle.m, 1e-6));
}

INSTANTIATE_TEST_SUITE_P(Momenta, SgdTest, ::testing::Values(0, 0.9));

TEST(SgdTest, ThreeStepsByHand) {
  State state = {{1.0f}, {0.0f}};
  SgdArgs args;
  args.momentum = 0.5;
  double w = 1;
  for (double m : {2.0, 3.0, 3.5}) {  // of a gradient of 2 in every step
    state.Update(args, {2.0f});
    w -= kLr * m;
    EXPECT_NEAR(state.w[0], w, 1e-7);
    EXPECT_EQ(state.m[0], static_cast<float>(m));
  }
}

TEST(SgdTest, DecayIsDecoupledFromTheGradientAndTheMomentum) {
  State state = {{2.0f}, {0.0f}};
  SgdArgs args;
  args.momentum = 0.9;
  args.weight_decay = 0.5;
  state.Update(args, {0.0f});
  EXPECT_EQ(state.w[0], static_cast<float>(2.0 * (1 - kLr * 0.5)));
  EXPECT_EQ(state.m[0], 0.0f);
}

TEST(SgdTest, AnElementDoesNotDependOnWhereTheSegmentIsCut) {
  constexpr int64_t kCount = 61;
  SgdArgs args;
  args.momentum = 0.9;
  args.weight_decay = 0.1;
  const auto scalars = Scalars(kLr, 0.9);
  args.scalars = scalars.data();
  const Floats grad = RandomFloats(kCount, 2);
  const State initial = {RandomFloats(kCount, 1), RandomFloats(kCount, 3)};
  State whole = initial;
  whole.Run(args, grad);
  State cut = initial;
  const int64_t ends[] = {0, 3, 19, 20, 40, kCount};
  for (int i = 0; i + 1 < 6; ++i) {
    args.count = ends[i + 1] - ends[i];
    args.grad = grad.data() + ends[i];
    args.w = cut.w.data() + ends[i];
    args.m = cut.m.data() + ends[i];
    Sgd(args, InlineStream());
  }
  EXPECT_TRUE(SameBits(whole.w, cut.w));
  EXPECT_TRUE(SameBits(whole.m, cut.m));
}

TEST(SgdTest, TellsWhichBitsOfWeightsChange) {
  State state = {Floats(3, 1.0f), {}};
  testing::Vector<uint32_t> word(1);
  uint32_t& changed = word[0];
  SgdArgs args;
  args.changed_bits = &changed;
  state.Update(args, {0, 0, 0});
  EXPECT_EQ(changed, 0) << "nothing has a gradient";
  state.Update(args, {0, 1e-9f, 0});
  EXPECT_EQ(changed, 0) << "what is too small moves nothing";
  state.Update(args, {0, 1, 0});
  EXPECT_NE(changed, 0);
  const uint32_t before = changed;
  state.Update(args, {0, 0, 0});
  EXPECT_EQ(changed, before) << "is or-ed in";
}

TEST(SgdTest, ASkippedStepChangesNothing) {
  for (const int64_t count : {5, 2048}) {
    const State before = {RandomFloats(count, 1), RandomFloats(count, 2)};
    State state = before;
    auto scalars = Scalars(kLr, NAN);
    scalars[0].skip = 1;
    testing::Vector<uint32_t> changed(1);
    SgdArgs args;
    args.scalars = scalars.data();
    args.changed_bits = changed.data();
    state.Run(args, Floats(count, NAN));
    EXPECT_TRUE(SameBits(state.w, before.w));
    EXPECT_TRUE(SameBits(state.m, before.m));
    EXPECT_EQ(changed[0], 0);
  }
}

TEST(SgdTest, NoElementsIsFine) {
  State state;
  state.Update(SgdArgs(), {});
}

TEST(SgdTest, ABf16GradientIsTheSameNumber) {
  const testing::Halves gradient = testing::RandomHalves(21, 1);
  const testing::Floats wide = testing::Widened(gradient);
  testing::Floats weights[2];
  testing::Floats moments[2];
  const auto scalars = Scalars(0.1, 1);
  for (int i = 0; i < 2; ++i) {
    weights[i] = testing::Floats(21, 0.5f);
    moments[i] = testing::Floats(21, 0.25f);
    SgdArgs args;
    args.count = 21;
    args.scalars = scalars.data();
    args.momentum = 0.9;
    if (i == 0) args.grad = gradient.data();
    if (i == 1) args.grad = wide.data();
    args.w = weights[i].data();
    args.m = moments[i].data();
    Sgd(args, testing::InlineStream());
  }
  EXPECT_TRUE(testing::SameBits(weights[0], weights[1]));
  EXPECT_TRUE(testing::SameBits(moments[0], moments[1]));
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

TEST(SgdTest, EveryDeviceComputesTheSameBits) {
  constexpr int64_t kCount = 300007;
  for (const bool momentum : {false, true}) {
    State state = {Numbers(kCount, 1), {}};
    if (momentum) state.m = Numbers(kCount, 2);
    SgdArgs args;
    args.momentum = 0.9;
    args.weight_decay = 0.1;
    state.Update(args, Numbers(kCount, 3), 0.7);
    EXPECT_EQ(testing::HashOfBits(state.w),
              momentum ? 13811398795597392268u : 9802488970828366927u);
    if (momentum) {
      EXPECT_EQ(testing::HashOfBits(state.m), 17444844880258948290u);
    }
  }
}

}  // namespace
}  // namespace weft::ops
