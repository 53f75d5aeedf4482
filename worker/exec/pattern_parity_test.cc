// Hybrid stacks: bit for bit the same in both orders and in strategies that
// reduce alike, and a group the same as its layers one by one.
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/hash64.h"
#include "base/sanitized.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/plan.h"
#include "worker/exec/testing/outcome.h"

namespace weft::exec {
namespace {

using testing::Difference;
using ::testing::DoubleNear;
using testing::MakeJob;
using testing::Outcome;
using ::testing::Pointwise;
using testing::SyntheticSamples;
using testing::TinyJob;
using testing::Train;

TinyJob PatternJob(const std::string& pattern) {
  TinyJob tiny;
  tiny.dense_layers = 0;
  tiny.more = absl::StrCat(
      "model { num_layers: 0 ffn_hidden_size: 20 pattern: '", pattern,
      "' mamba { num_heads: 4 head_dim: 6 num_groups: 2 state_size: 5 "
      "chunk_size: 4 } }");
  if (!absl::StrContains(pattern, '+')) return tiny;
  absl::StrAppend(&tiny.more,
                  " model { attention { num_kv_heads: 4 } mla { q_lora_rank: "
                  "10 kv_lora_rank: 6 qk_nope_head_dim: 3 qk_rope_head_dim: 2 "
                  "v_head_dim: 5 } }");
  return tiny;
}

std::string Describe(const TinyJob& tiny) {
  return absl::StrCat("world ", tiny.world, " ep ", tiny.ep, ", ",
                      tiny.microbatches, " microbatches, ",
                      tiny.combined ? "combined" : "sequential",
                      tiny.delay_wgrad ? ", delayed, " : ", at once, ",
                      v1::ShardingStrategy_Name(tiny.strategy), " ", tiny.more);
}

// EP 4; EP 2 with two replicas of each expert.
constexpr std::pair<int, int> kWorlds[] = {{4, 4}, {4, 2}};

// Pattern, shared expert, dispatcher.
class PatternParityTest : public ::testing::TestWithParam<
                              std::tuple<const char*, bool, v1::Dispatcher>> {};

TEST_P(PatternParityTest, OrdersAndStrategiesThatReduceAlikeAgree) {
  TinyJob tiny = PatternJob(std::get<0>(GetParam()));
  tiny.shared_expert = std::get<1>(GetParam());
  absl::StrAppend(&tiny.more, " parallel { dispatcher: ",
                  v1::Dispatcher_Name(std::get<2>(GetParam())), " }");
  for (const auto& [world, ep] : kWorlds) {
    tiny.world = world;
    tiny.ep = ep;
    for (int microbatches : {1, 3, 4}) {
      if (IsSanitized() && microbatches != 3) continue;
      tiny.microbatches = microbatches;
      std::optional<Outcome> first;
      for (const auto strategy : {v1::SHARDING_STRATEGY_OPTIM_GRADS,
                                  v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS}) {
        for (const auto& [combined, delay] : {std::pair(false, false),
                                              {false, true},
                                              {true, false},
                                              {true, true}}) {
          if (IsSanitized() && combined != delay) continue;
          tiny.strategy = strategy;
          tiny.combined = combined;
          tiny.delay_wgrad = delay;
          ASSERT_OK_AND_ASSIGN(const Outcome outcome,
                               Train(tiny, SyntheticSamples::Kind::kRule));
          if (!first.has_value()) first = outcome;
          EXPECT_EQ(Difference(*first, outcome), "") << Describe(tiny);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Patterns, PatternParityTest,
    ::testing::Combine(::testing::Values("[*E][*E]", "*[**E]-ME", "[M*E][M*E]",
                                         "[+E][+E]", "M[++-]*E"),
                       ::testing::Bool(),
                       ::testing::Values(v1::DISPATCHER_ALLTOALL,
                                         v1::DISPATCHER_FLEX)));

// Random weights of the n-th parameter of a job, whatever its name is.
class WeightsByPlace : public InitialWeights {
 public:
  explicit WeightsByPlace(const v1::TrainingJob& job) {
    for (const model::ParamDecl& param : schedule::Declare(job).model.params) {
      place_.emplace(param.name, place_.size());
    }
  }

  absl::Status Read(const model::ParamDecl& param, int64_t begin,
                    absl::Span<float> out) const override {
    for (size_t i = 0; i < out.size(); ++i) {
      Hash64 hash;
      hash.AddInt(place_.at(param.name)).AddInt(begin + i);
      const double uniform =
          static_cast<double>(hash.Get() >> 11) / (1ull << 53);
      out[i] = param.init_std == 0 ? 1 + 0.1 * (uniform - 0.5)
                                   : 0.6 * (uniform - 0.5);
    }
    return absl::OkStatus();
  }

 private:
  std::map<std::string, size_t> place_;
};

struct Stack {
  const char* grouped;
  const char* flat;
};
class GroupTest : public ::testing::TestWithParam<Stack> {};

TEST_P(GroupTest, IsBitForBitItsLayersOneByOne) {
  std::vector<Outcome> outcomes;
  std::vector<std::vector<std::string>> names;
  for (const char* pattern : {GetParam().grouped, GetParam().flat}) {
    TinyJob tiny = PatternJob(pattern);
    tiny.world = 2;
    tiny.ep = 2;
    tiny.microbatches = 3;
    const v1::TrainingJob job = MakeJob(tiny);
    const WeightsByPlace weights(job);
    ASSERT_OK_AND_ASSIGN(Outcome outcome,
                         Train(tiny, SyntheticSamples::Kind::kRule, &weights));
    outcomes.push_back(std::move(outcome));
    names.emplace_back();
    for (const model::ParamDecl& param : schedule::Declare(job).model.params) {
      names.back().push_back(param.name);
    }
  }
  EXPECT_EQ(outcomes[0].losses, outcomes[1].losses);
  // Buckets follow the layers, and a norm is a sum over buckets in fp64.
  EXPECT_THAT(outcomes[0].norms,
              Pointwise(DoubleNear(1e-13), outcomes[1].norms));
  ASSERT_EQ(names[0].size(), names[1].size());
  for (size_t i = 0; i < names[0].size(); ++i) {
    EXPECT_EQ(outcomes[0].parameters.at(names[0][i]),
              outcomes[1].parameters.at(names[1][i]))
        << names[0][i] << " and " << names[1][i];
  }
}

INSTANTIATE_TEST_SUITE_P(Stacks, GroupTest,
                         ::testing::Values(Stack{"[*E][*E]", "*E*E"},
                                           Stack{"[*-][**E]-", "*-**E-"},
                                           Stack{"[M*E]M[M-]", "M*EMM-"},
                                           Stack{"[+E][+*-]", "+E+*-"}));

TEST(GroupTest, OfTransformerLayersIsTheListOfThem) {
  TinyJob tiny;
  tiny.world = 2;
  tiny.ep = 2;
  tiny.microbatches = 2;
  ASSERT_OK_AND_ASSIGN(const Outcome list,
                       Train(tiny, SyntheticSamples::Kind::kRule));
  TinyJob grouped = PatternJob("[*-][*E][*E]");
  grouped.world = 2;
  grouped.ep = 2;
  grouped.microbatches = 2;
  ASSERT_OK_AND_ASSIGN(const Outcome stack,
                       Train(grouped, SyntheticSamples::Kind::kRule));
  EXPECT_EQ(Difference(list, stack), "");
}

}  // namespace
}  // namespace weft::exec
