// What backward computes again changes no bit of a training run.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/sanitized.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/exec/testing/outcome.h"
#include "worker/exec/testing/parity.h"

namespace weft::exec {
namespace {

using testing::Describe;
using testing::Difference;
using testing::kStrategies;
using testing::Outcome;
using testing::SyntheticSamples;
using testing::TinyJob;
using testing::Train;

std::string Parts(const std::vector<std::string>& parts) {
  std::string text = "schedule { recompute { ";
  for (const std::string& part : parts) {
    absl::StrAppend(&text, "parts: RECOMPUTE_PART_", part, " ");
  }
  return absl::StrCat(text, "} } ");
}

constexpr char kFull[] = "schedule { recompute { full: true } } ";

// A model, and parts of its layers.
struct RecomputeCase {
  std::string name;
  TinyJob job;
  std::vector<std::string> parts;
};

TinyJob Pattern(const std::string& pattern, const std::string& more) {
  TinyJob tiny;
  tiny.dense_layers = 0;
  tiny.more =
      absl::StrCat("model { num_layers: 0 ffn_hidden_size: 20 pattern: '",
                   pattern, "' ", more, " } ");
  return tiny;
}

constexpr char kMamba[] =
    "mamba { num_heads: 4 head_dim: 6 num_groups: 2 state_size: 5 chunk_size: "
    "4 }";
constexpr char kMla[] =
    "attention { num_kv_heads: 4 } mla { q_lora_rank: 10 kv_lora_rank: 6 "
    "qk_nope_head_dim: 3 qk_rope_head_dim: 2 v_head_dim: 5 }";

std::vector<RecomputeCase> Cases() {
  const std::vector<std::string> common = {"NORM", "ATTENTION_CORE",
                                           "MOE_ACTIVATION", "SHARED_EXPERT"};
  TinyJob whole;
  whole.optional_parts = true;
  whole.router_losses = true;
  whole.tied = true;
  TinyJob gathered;
  gathered.more = "parallel { dispatcher: DISPATCHER_ALLGATHER } ";
  TinyJob pulled;
  pulled.more = "parallel { dispatcher: DISPATCHER_FLEX } ";
  TinyJob uneven;
  uneven.uneven = {2, 1, 3};
  uneven.compute = v1::NUMBER_FORMAT_BF16;
  std::vector<std::string> dense = common;
  dense.push_back("MLP");
  std::vector<std::string> latent = common;
  latent.push_back("MLA_UP_PROJECTION");
  return {{"Transformer", whole, dense},
          {"Gathered", gathered, dense},
          {"Flex", pulled, dense},
          {"Uneven", uneven, dense},
          {"Mamba", Pattern("[M*E]M-[M*E]", kMamba), dense},
          {"Latent", Pattern("[+E]+[+E]", kMla), latent}};
}

class RecomputeParityTest : public ::testing::TestWithParam<RecomputeCase> {
 protected:
  // Trains in each order and expects what `kept` came to.
  void Compare(TinyJob tiny, const Outcome& kept) {
    for (const auto& [combined, delay] : {std::pair(false, false),
                                          {false, true},
                                          {true, false},
                                          {true, true}}) {
      if (IsSanitized() && combined != delay) continue;
      tiny.combined = combined;
      tiny.delay_wgrad = delay;
      ASSERT_OK_AND_ASSIGN(const Outcome outcome,
                           Train(tiny, SyntheticSamples::Kind::kRule));
      EXPECT_EQ(Difference(kept, outcome), "") << Describe(tiny);
    }
  }

  static TinyJob Job() {
    TinyJob tiny = GetParam().job;
    tiny.world = 2;
    tiny.ep = 2;
    tiny.microbatches = 3;
    return tiny;
  }
};

TEST_P(RecomputeParityTest, EachPartAndAllOfThem) {
  const TinyJob tiny = Job();
  ASSERT_OK_AND_ASSIGN(const Outcome kept,
                       Train(tiny, SyntheticSamples::Kind::kRule));
  std::vector<std::vector<std::string>> settings = {GetParam().parts};
  for (const std::string& part : GetParam().parts) {
    if (!IsSanitized()) settings.push_back({part});
  }
  for (const std::vector<std::string>& parts : settings) {
    TinyJob again = tiny;
    again.more += Parts(parts);
    ASSERT_NO_FATAL_FAILURE(Compare(again, kept));
  }
}

TEST_P(RecomputeParityTest, AllOfALayerInEveryStrategyAndWorld) {
  for (const auto& [world, ep] : {std::pair(1, 1), {2, 2}, {4, 2}}) {
    for (const auto strategy : kStrategies) {
      if (IsSanitized() && world != 2) continue;
      TinyJob tiny = Job();
      tiny.world = world;
      tiny.ep = ep;
      tiny.strategy = strategy;
      ASSERT_OK_AND_ASSIGN(const Outcome kept,
                           Train(tiny, SyntheticSamples::Kind::kRule));
      tiny.more += kFull;
      ASSERT_NO_FATAL_FAILURE(Compare(tiny, kept));
    }
  }
}

// All rows go to two experts; the others have none.
TEST_P(RecomputeParityTest, ExpertsWithoutTokens) {
  TinyJob tiny = Job();
  ASSERT_OK_AND_ASSIGN(const Outcome kept,
                       Train(tiny, SyntheticSamples::Kind::kConstant));
  tiny.more += kFull;
  ASSERT_OK_AND_ASSIGN(const Outcome full,
                       Train(tiny, SyntheticSamples::Kind::kConstant));
  EXPECT_EQ(Difference(kept, full), "");
}

INSTANTIATE_TEST_SUITE_P(Models, RecomputeParityTest,
                         ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::exec
