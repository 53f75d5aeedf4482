// Bitwise parity of what routers do.
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/exec/testing/parity.h"

namespace weft::exec {
namespace {

using testing::CompareWithOneRankThatSeesTheSameTokens;
using ::testing::ElementsAre;
using testing::Outcome;
using testing::ParityTest;
using testing::SyntheticSamples;
using testing::TinyJob;
using testing::Train;
using testing::WorldName;
using testing::Worlds;

class RouterParityTest : public ParityTest {};

constexpr char kSigmoidRouter[] =
    "model { moe { score_function: SCORE_FUNCTION_SIGMOID scaling_factor: 2.5 "
    "expert_groups { groups: 2 kept: 1 } expert_bias { update_rate: 0.02 } } }";

TEST_P(RouterParityTest, SigmoidRouterWithABiasInGroups) {
  TinyJob tiny;
  tiny.microbatches = 3;
  tiny.router_losses = true;
  tiny.more = kSigmoidRouter;
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(RouterParityTest, PaddingOfUnevenMicrobatches) {
  few_orders_ = true;
  TinyJob tiny;
  tiny.microbatches = 3;
  tiny.uneven = {2, 1, 3};
  tiny.router_losses = true;
  tiny.padding_mask = true;
  tiny.loss_mask = true;
  tiny.token_loss = true;
  tiny.more = kSigmoidRouter;
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(RouterParityTest, CapacityThatDropsAndPads) {
  for (const char* pad : {"false", "true"}) {
    TinyJob tiny;
    tiny.microbatches = 2;
    tiny.sequences = 2;
    tiny.router_losses = true;
    tiny.more = absl::StrCat("model { moe { capacity { factor: 0.75 pad: ", pad,
                             " } } }");
    CompareAll(tiny, SyntheticSamples::Kind::kRule);
  }
}

TEST_P(RouterParityTest, CapacityAlikeDroppedOrPadded) {
  TinyJob tiny;
  std::tie(tiny.world, tiny.ep) = GetParam();
  tiny.sequences = 2;
  tiny.more = "model { moe { capacity { factor: 0.75 } } }";
  ASSERT_OK_AND_ASSIGN(const Outcome dropped,
                       Train(tiny, SyntheticSamples::Kind::kRule));
  tiny.more = "model { moe { capacity { factor: 0.75 pad: true } } }";
  ASSERT_OK_AND_ASSIGN(const Outcome padded,
                       Train(tiny, SyntheticSamples::Kind::kRule));
  tiny.more = "";
  ASSERT_OK_AND_ASSIGN(const Outcome whole,
                       Train(tiny, SyntheticSamples::Kind::kRule));
  EXPECT_NEAR(dropped.losses[0] / padded.losses[0], 1, 2e-6);
  EXPECT_NEAR(dropped.norms[0] / padded.norms[0], 1, 3e-5);
  EXPECT_NE(dropped.losses[0], whole.losses[0]);
}

INSTANTIATE_TEST_SUITE_P(Worlds, RouterParityTest,
                         ::testing::ValuesIn(Worlds()), WorldName);

// Of a step's routed tokens over all ranks: equal in every world.
TEST(RouterWorldSizesTest, BiasesOfExpertsFollowTheTokensOfAllRanks) {
  TinyJob tiny;
  tiny.microbatches = 3;
  tiny.padding_mask = true;
  tiny.router_losses = true;
  tiny.more = kSigmoidRouter;
  CompareWithOneRankThatSeesTheSameTokens(tiny);
  constexpr char kBias[] = "layers.1.expert_bias";
  TinyJob one = tiny;
  one.sequences = 4;
  ASSERT_OK_AND_ASSIGN(Outcome alone,
                       Train(one, SyntheticSamples::Kind::kRule));
  EXPECT_NE(alone.parameters.at(kBias), std::vector<float>(4));
  tiny.world = 4;
  tiny.ep = 2;
  ASSERT_OK_AND_ASSIGN(Outcome many,
                       Train(tiny, SyntheticSamples::Kind::kRule));
  EXPECT_EQ(many.parameters.at(kBias), alone.parameters.at(kBias));
}

// Routers that score all experts alike.
class WeightsWithoutRouters : public InitialWeights {
 public:
  absl::Status Read(const model::ParamDecl& param, int64_t begin,
                    absl::Span<float> out) const override {
    const bool is_zero = absl::EndsWith(param.name, ".router") ||
                         absl::EndsWith(param.name, ".expert_bias");
    for (size_t i = 0; i < out.size(); ++i) {
      const double place = static_cast<double>(begin + i);
      out[i] = is_zero ? 0.0f : static_cast<float>(0.5 + 0.1 * std::sin(place));
    }
    return absl::OkStatus();
  }
};

// Of experts alike the first two get all tokens, then, with their biases lower
// and those of the others higher, the others, then the first again.
TEST(ExpertBiasTest, GrowsWhereFewerTokensGoThanToTheMean) {
  TinyJob tiny;
  tiny.microbatches = 2;
  tiny.more = absl::StrCat(
      kSigmoidRouter,
      " optimizer { groups { parameters: '*.router' frozen: true } }");
  const WeightsWithoutRouters weights;
  const auto after = [&](int steps) {
    tiny.steps = steps;
    const auto outcome = Train(tiny, SyntheticSamples::Kind::kRule, &weights);
    EXPECT_OK(outcome);
    return outcome.ok() ? outcome->parameters.at("layers.1.expert_bias")
                        : std::vector<float>();
  };
  EXPECT_THAT(after(1), ElementsAre(-0.02f, -0.02f, 0.02f, 0.02f));
  EXPECT_THAT(after(2), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(after(3), ElementsAre(-0.02f, -0.02f, 0.02f, 0.02f));
}

}  // namespace
}  // namespace weft::exec
