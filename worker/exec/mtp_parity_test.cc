// Bitwise parity of multi-token prediction.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/exec/testing/parity.h"

namespace weft::exec {
namespace {

using testing::CompareWithOneRankThatSeesTheSameTokens;
using testing::Difference;
using testing::Outcome;
using testing::ParityTest;
using testing::SyntheticSamples;
using testing::TinyJob;
using testing::Train;
using testing::WorldName;
using testing::Worlds;

class MtpParityTest : public ParityTest {};

std::string Mtp(int depth, bool dense) {
  return absl::StrCat("model { mtp { depth: ", depth,
                      " loss_factor: 0.5 dense: ", dense ? "true" : "false",
                      " } }");
}

TEST_P(MtpParityTest, OneDepthWithExperts) {
  TinyJob tiny;
  tiny.microbatches = 3;
  tiny.router_losses = true;
  tiny.more = Mtp(1, false);
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(MtpParityTest, OneDenseDepth) {
  TinyJob tiny;
  tiny.microbatches = 2;
  tiny.more = Mtp(1, true);
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

TEST_P(MtpParityTest, TwoDepthsOfATiedEmbedding) {
  for (bool dense : {false, true}) {
    TinyJob tiny;
    tiny.microbatches = 2;
    tiny.tied = true;
    tiny.more = Mtp(2, dense);
    CompareAll(tiny, SyntheticSamples::Kind::kRule);
  }
}

TEST_P(MtpParityTest, MicrobatchesWithoutALabel) {
  for (bool token_loss : {false, true}) {
    TinyJob tiny;
    tiny.microbatches = 5;
    tiny.loss_mask = true;
    tiny.token_loss = token_loss;
    tiny.tied = token_loss;
    tiny.more = Mtp(2, false);
    CompareAll(tiny, SyntheticSamples::Kind::kGaps);
  }
}

TEST_P(MtpParityTest, PartsOfAHybridStack) {
  few_orders_ = true;
  for (const char* pattern : {"[M*E]E/*E/*E", "[*-]/MM", "E[*E]/M-"}) {
    TinyJob tiny;
    tiny.microbatches = 3;
    tiny.dense_layers = 0;
    tiny.more = absl::StrCat(
        "model { num_layers: 0 ffn_hidden_size: 20 pattern: '", pattern,
        "' mamba { num_heads: 4 head_dim: 6 num_groups: 2 state_size: 5 "
        "chunk_size: 4 } }");
    CompareAll(tiny, SyntheticSamples::Kind::kRule);
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, MtpParityTest, ::testing::ValuesIn(Worlds()),
                         WorldName);

// With means over microbatches and over tokens.
TEST(MtpTest, LossesOfDepthsAreThoseOfAllRanksTokens) {
  for (bool token_loss : {false, true}) {
    TinyJob tiny;
    tiny.microbatches = 3;
    tiny.uneven = {2, 1, 3};
    tiny.loss_mask = true;
    tiny.token_loss = token_loss;
    tiny.more = Mtp(2, false);
    CompareWithOneRankThatSeesTheSameTokens(tiny);
  }
}

TEST(MtpTest, APartIsTheLayerThatADepthHasWithoutOne) {
  TinyJob list;
  list.world = 2;
  list.ep = 2;
  list.microbatches = 2;
  list.more = Mtp(2, false);
  ASSERT_OK_AND_ASSIGN(const Outcome expected,
                       Train(list, SyntheticSamples::Kind::kRule));
  for (const char* model : {"pattern: '[*-][*E][*E]' mtp { depth: 2",
                            "pattern: '[*-][*E][*E]/*E/*E' mtp {"}) {
    TinyJob stack = list;
    stack.dense_layers = 0;
    stack.more = absl::StrCat("model { num_layers: 0 ffn_hidden_size: 20 ",
                              model, " loss_factor: 0.5 } }");
    ASSERT_OK_AND_ASSIGN(const Outcome outcome,
                         Train(stack, SyntheticSamples::Kind::kRule));
    EXPECT_EQ(Difference(expected, outcome), "") << model;
  }
}

}  // namespace
}  // namespace weft::exec
