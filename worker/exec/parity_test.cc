// Bitwise parity: how a step is ordered, and what is sharded, changes no bit of
// losses or parameters where the design says so.
#include "worker/exec/testing/parity.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/glob.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"

namespace weft::exec {
namespace {

using testing::CompareWithOneRankThatSeesTheSameTokens;
using testing::Describe;
using testing::Difference;
using testing::kStrategies;
using testing::Outcome;
using testing::ParityTest;
using testing::SyntheticSamples;
using testing::TinyJob;
using testing::Train;
using testing::WorldName;
using testing::Worlds;

// Globs of some parameters of every kind of node.
constexpr const char* kFrozen[] = {"*.norm1", "layers.1.*", "*.experts.down",
                                   "embedding.table", "*.q_norm"};

bool IsInFrozenGroup(const std::string& name) {
  return std::any_of(std::begin(kFrozen), std::end(kFrozen),
                     [&](const char* glob) { return MatchesGlob(glob, name); });
}

// A group of these parameters, in a job that does not clip.
std::string FrozenGroup(const std::string& treatment) {
  std::string globs;
  for (const char* glob : kFrozen) {
    absl::StrAppend(&globs, "parameters: '", glob, "' ");
  }
  return absl::StrCat("optimizer { clip_norm: 0 groups { ", globs, treatment,
                      " } }");
}

TEST_P(ParityTest, OneMicrobatch) {
  TinyJob tiny;
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(ParityTest, TwoMicrobatches) {
  TinyJob tiny;
  tiny.microbatches = 2;
  tiny.sequences = 2;
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(ParityTest, ThreeMicrobatches) {
  TinyJob tiny;
  tiny.microbatches = 3;
  tiny.dense_layers = 0;
  tiny.shared_expert = false;
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(ParityTest, FiveMicrobatches) {
  TinyJob tiny;
  tiny.microbatches = 5;
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(ParityTest, TiedEmbeddings) {
  TinyJob tiny;
  tiny.microbatches = 3;
  tiny.tied = true;
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(ParityTest, TiedEmbeddingsInOneMicrobatch) {
  TinyJob tiny;
  tiny.tied = true;
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(ParityTest, Bf16Compute) {
  TinyJob tiny;
  tiny.microbatches = 3;
  tiny.tied = true;
  tiny.compute = v1::NUMBER_FORMAT_BF16;
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(ParityTest, Bf16ComputeAndGradientsOfEveryOptionalPart) {
  TinyJob tiny;
  tiny.microbatches = 2;
  tiny.optional_parts = true;
  tiny.compute = v1::NUMBER_FORMAT_BF16;
  tiny.gradients = v1::NUMBER_FORMAT_BF16;
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(ParityTest, EveryOptionalPartOfALayer) {
  TinyJob tiny;
  tiny.microbatches = 2;
  tiny.optional_parts = true;
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(ParityTest, LatentAttentionAndMultipliers) {
  TinyJob tiny;
  tiny.microbatches = 2;
  tiny.more =
      "model { attention { num_kv_heads: 4 } mla { q_lora_rank: 10 "
      "kv_lora_rank: 6 qk_nope_head_dim: 3 qk_rope_head_dim: 2 v_head_dim: 5 } "
      "embedding_multiplier: 2 residual_multiplier: 0.5 logits_divisor: 1.5 }";
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(ParityTest, RouterLosses) {
  TinyJob tiny;
  tiny.microbatches = 3;
  tiny.router_losses = true;
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(ParityTest, UnevenMicrobatchesWithMaskAndMeansOverTokens) {
  TinyJob tiny;
  tiny.microbatches = 3;
  tiny.uneven = {2, 1, 3};
  tiny.router_losses = true;
  tiny.loss_mask = true;
  tiny.token_loss = true;
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(ParityTest, SquaredRelu) {
  TinyJob tiny;
  tiny.microbatches = 2;
  tiny.optional_parts = true;
  tiny.squared_relu = true;
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(ParityTest, SgdWithAndWithoutMomentum) {
  few_orders_ = true;
  for (const char* momentum : {"", "momentum: 0.9"}) {
    TinyJob tiny;
    tiny.microbatches = 2;
    tiny.more =
        absl::StrCat("optimizer { kind: OPTIMIZER_KIND_SGD ", momentum, " }");
    CompareAll(tiny, SyntheticSamples::Kind::kRule);
  }
}

TEST_P(ParityTest, ParameterGroupsAndWsd) {
  few_orders_ = true;
  TinyJob tiny;
  tiny.microbatches = 2;
  tiny.more =
      "optimizer { decay: DECAY_WSD wsd_decay_steps: 2 "
      "groups { parameters: ['*.norm?', 'head.norm'] weight_decay: 0.5 } "
      "groups { parameters: 'layers.1.*' learning_rate_scale: 3 } }";
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(ParityTest, FrozenParameters) {
  few_orders_ = true;
  TinyJob tiny;
  tiny.microbatches = 2;
  tiny.optional_parts = true;
  tiny.more = FrozenGroup("frozen: true");
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

// A frozen parameter is one whose gradient nobody uses.
TEST_P(ParityTest, FrozenParametersAreThoseWithoutALearningRate) {
  TinyJob tiny;
  std::tie(tiny.world, tiny.ep) = GetParam();
  tiny.microbatches = 2;
  for (const auto strategy : kStrategies) {
    tiny.strategy = strategy;
    tiny.more = FrozenGroup("learning_rate_scale: 0");
    ASSERT_OK_AND_ASSIGN(const Outcome still,
                         Train(tiny, SyntheticSamples::Kind::kRule));
    tiny.more = FrozenGroup("frozen: true");
    ASSERT_OK_AND_ASSIGN(Outcome frozen,
                         Train(tiny, SyntheticSamples::Kind::kRule));
    EXPECT_LT(frozen.norms[0], still.norms[0]);
    frozen.norms = still.norms;
    EXPECT_EQ(Difference(still, frozen), "") << Describe(tiny);
    tiny.steps = 0;
    ASSERT_OK_AND_ASSIGN(const Outcome before,
                         Train(tiny, SyntheticSamples::Kind::kRule));
    tiny.steps = 3;
    for (const auto& [name, values] : frozen.parameters) {
      const bool changed = values != before.parameters.at(name);
      EXPECT_EQ(changed, !IsInFrozenGroup(name)) << name;
    }
  }
}

TEST_P(ParityTest, BufferSlots) {
  TinyJob tiny;
  std::tie(tiny.world, tiny.ep) = GetParam();
  tiny.microbatches = 3;
  ASSERT_OK_AND_ASSIGN(const Outcome reference,
                       Train(tiny, SyntheticSamples::Kind::kRule));
  for (int slots : {1, 2, 5}) {
    tiny.more = absl::StrCat(
        "fsdp { prefetch_bytes: 100000 buffer_slots: ", slots, " }");
    for (bool combined : {false, true}) {
      tiny.combined = combined;
      tiny.delay_wgrad = combined;
      ASSERT_OK_AND_ASSIGN(const Outcome outcome,
                           Train(tiny, SyntheticSamples::Kind::kRule));
      EXPECT_EQ(Difference(reference, outcome), "") << Describe(tiny);
    }
  }
}

TEST_P(ParityTest, ExpertsWithoutTokens) {
  TinyJob tiny;
  tiny.microbatches = 3;
  CompareAll(tiny, SyntheticSamples::Kind::kConstant);
}

INSTANTIATE_TEST_SUITE_P(Worlds, ParityTest, ::testing::ValuesIn(Worlds()),
                         WorldName);

TEST(WorldSizesTest, AgreeWithOneRankThatSeesTheSameTokens) {
  CompareWithOneRankThatSeesTheSameTokens({});
}

// With means over microbatches and over tokens.
TEST(WorldSizesTest, MaskedTokensOfUnevenMicrobatchesAreCountedOverAllRanks) {
  for (bool token_loss : {false, true}) {
    TinyJob tiny;
    tiny.microbatches = 3;
    tiny.uneven = {2, 1, 3};
    tiny.router_losses = true;
    tiny.loss_mask = true;
    tiny.token_loss = token_loss;
    CompareWithOneRankThatSeesTheSameTokens(tiny);
  }
}

TEST(WorldSizesTest, RouterLossesAreThoseOfAllRanksTokens) {
  TinyJob tiny;
  tiny.microbatches = 3;
  tiny.router_losses = true;
  CompareWithOneRankThatSeesTheSameTokens(tiny);
}

}  // namespace
}  // namespace weft::exec
