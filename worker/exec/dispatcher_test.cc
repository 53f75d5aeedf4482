// Dispatchers: how tokens reach their experts changes no bit of a step, and
// with static sizes the host waits for nothing in it.
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/sanitized.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/exec/testing/local_world.h"

namespace weft::exec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::LocalWorld;
using testing::LocalWorldOptions;
using testing::MakeJob;
using testing::SyntheticSamples;
using testing::TinyJob;

using Tensors = std::map<std::string, std::vector<float>>;

constexpr v1::Dispatcher kStatic[] = {v1::DISPATCHER_ALLGATHER,
                                      v1::DISPATCHER_FLEX};

struct Outcome {
  // Losses, those of routers among them, and norms of all steps.
  std::vector<double> numbers;
  std::vector<double> imbalances;
  std::vector<std::vector<int64_t>> received;  // by rank, of the last step
  Tensors gradients;                           // of the last step
  Tensors parameters;
};

absl::StatusOr<Outcome> Train(LocalWorldOptions options, int steps) {
  ASSIGN_OR_RETURN(auto world, LocalWorld::Create(std::move(options)));
  ASSIGN_OR_RETURN(auto results, world->RunSteps(steps));
  Outcome outcome;
  for (const StepResult& step : results[0]) {
    outcome.numbers.push_back(step.metrics.loss());
    outcome.numbers.push_back(step.metrics.grad_norm());
    outcome.numbers.push_back(step.metrics.objective());
    outcome.imbalances.push_back(step.metrics.expert_imbalance());
  }
  for (const auto& rank : results) {
    outcome.received.push_back(rank.back().received_rows);
  }
  ASSIGN_OR_RETURN(outcome.gradients, world->Gradients());
  ASSIGN_OR_RETURN(outcome.parameters, world->Parameters());
  return outcome;
}

LocalWorldOptions With(const TinyJob& tiny, v1::Dispatcher dispatcher) {
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  options.job.mutable_parallel()->set_dispatcher(dispatcher);
  return options;
}

// World, EP, format of activations and gradients.
class DispatcherTest
    : public ::testing::TestWithParam<std::tuple<int, int, v1::NumberFormat>> {
 protected:
  TinyJob Tiny() const {
    TinyJob tiny;
    std::tie(tiny.world, tiny.ep, tiny.compute) = GetParam();
    tiny.gradients = tiny.compute;
    tiny.microbatches = 2;
    return tiny;
  }

  // All orders with dispatchers of static sizes are compared with all-to-alls
  // in sequential order.
  void CompareWithAllToAll(TinyJob tiny, SyntheticSamples::Kind samples) {
    tiny.combined = false;
    LocalWorldOptions options = With(tiny, v1::DISPATCHER_ALLTOALL);
    options.samples = samples;
    ASSERT_OK_AND_ASSIGN(const Outcome expected,
                         Train(std::move(options), tiny.steps));
    for (const v1::Dispatcher dispatcher : kStatic) {
      for (const auto& [combined, delay] :
           {std::pair(false, false), {false, true}, {true, true}}) {
        tiny.combined = combined;
        tiny.delay_wgrad = delay;
        options = With(tiny, dispatcher);
        options.samples = samples;
        SCOPED_TRACE(absl::StrCat(v1::Dispatcher_Name(dispatcher),
                                  combined ? " combined" : " sequential",
                                  delay ? " delayed" : " at once"));
        ASSERT_OK_AND_ASSIGN(const Outcome outcome,
                             Train(std::move(options), tiny.steps));
        EXPECT_EQ(outcome.numbers, expected.numbers);
        EXPECT_EQ(outcome.imbalances, expected.imbalances);
        EXPECT_EQ(outcome.received, expected.received);
        EXPECT_EQ(outcome.gradients, expected.gradients);
        EXPECT_EQ(outcome.parameters, expected.parameters);
      }
    }
  }
};

TEST_P(DispatcherTest, ResultsAreThoseOfAllToAlls) {
  CompareWithAllToAll(Tiny(), SyntheticSamples::Kind::kRule);
}

// All tokens go to the same two experts.
TEST_P(DispatcherTest, ExpertsMayGetEverythingOrNothing) {
  TinyJob tiny = Tiny();
  tiny.shared_expert = false;
  CompareWithAllToAll(tiny, SyntheticSamples::Kind::kConstant);
}

TEST_P(DispatcherTest, UnevenMicrobatchesWithRouterLossesOfEveryOptionalPart) {
  TinyJob tiny = Tiny();
  tiny.microbatches = 3;
  tiny.uneven = {2, 1, 3};
  tiny.optional_parts = true;
  tiny.squared_relu = true;
  tiny.router_losses = true;
  CompareWithAllToAll(tiny, SyntheticSamples::Kind::kRule);
}

// Some choices are dropped.
TEST_P(DispatcherTest, ChoicesBeyondTheCapacityOfExpertsAreDropped) {
  TinyJob tiny = Tiny();
  tiny.more = "model { moe { capacity { factor: 0.75 } } }";
  CompareWithAllToAll(tiny, SyntheticSamples::Kind::kRule);
}

std::vector<std::tuple<int, int, v1::NumberFormat>> Cases() {
  std::vector<std::tuple<int, int, v1::NumberFormat>> cases;
  for (const auto format : {v1::NUMBER_FORMAT_FP32, v1::NUMBER_FORMAT_BF16}) {
    for (const auto& [world, ep] : {std::pair(1, 1), {2, 2}, {4, 2}, {4, 4}}) {
      if (IsSanitized() && world != 2) continue;
      cases.emplace_back(world, ep, format);
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, DispatcherTest, ::testing::ValuesIn(Cases()), [](const auto& info) {
      return absl::StrCat(
          "World", std::get<0>(info.param), "Ep", std::get<1>(info.param),
          std::get<2>(info.param) == v1::NUMBER_FORMAT_BF16 ? "Bf16" : "");
    });

TinyJob TwoRanks() {
  TinyJob tiny;
  tiny.world = 2;
  tiny.ep = 2;
  tiny.microbatches = 2;
  return tiny;
}

TEST(StaticDispatcherTest, NoHostWaitIsPlannedOrMade) {
  for (const v1::Dispatcher dispatcher : kStatic) {
    TinyJob tiny = TwoRanks();
    tiny.eval_batches = 1;
    ASSERT_OK_AND_ASSIGN(auto world,
                         LocalWorld::Create(With(tiny, dispatcher)));
    ASSERT_TRUE(world->plan().eval.has_value());
    for (const schedule::Program* program :
         {&world->plan().train, &*world->plan().eval}) {
      for (const schedule::Op& op : program->ops) {
        EXPECT_NE(op.kind, schedule::OpKind::kHostWait);
      }
    }
    ASSERT_OK_AND_ASSIGN(const auto results, world->RunSteps(2));
    for (const auto& rank : results) {
      for (const StepResult& step : rank) {
        EXPECT_EQ(step.metrics.host_waits(), 0);
        EXPECT_EQ(step.metrics.allocations(), 0);
      }
    }
    EXPECT_OK(world->ForEachRank(
        [](int, Engine& engine) { return engine.RunEval(1).status(); }));
  }
}

// Each rank sends its tokens, and the sums of its experts, to the other.
TEST(StaticDispatcherTest, BytesOnTheWireDoNotDependOnRouting) {
  const TinyJob tiny = TwoRanks();
  const int64_t row = tiny.hidden * 4;
  const int64_t slots = 2 * 4;  // of a token, fp32
  const int64_t tokens = tiny.sequence_length;
  const int64_t layer = tokens * (2 * (row + slots) + 2 * row);
  for (const auto samples :
       {SyntheticSamples::Kind::kRule, SyntheticSamples::Kind::kConstant}) {
    LocalWorldOptions options = With(tiny, v1::DISPATCHER_ALLGATHER);
    options.samples = samples;
    ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
    ASSERT_OK_AND_ASSIGN(const auto results, world->RunSteps(1));
    for (const auto& rank : results) {
      // Two layers with experts, two microbatches.
      EXPECT_EQ(rank[0].metrics.ep_wire_bytes(), 2 * 2 * layer);
    }
  }
}

TEST(StaticDispatcherTest, MoreRowsThanTheBoundFailTheStepOnEveryRank) {
  for (const v1::Dispatcher dispatcher : kStatic) {
    TinyJob tiny = TwoRanks();
    tiny.world = 4;
    LocalWorldOptions options = With(tiny, dispatcher);
    options.job.mutable_model()->mutable_moe()->set_max_rows_factor(1);
    // Every row goes to the same two experts: one rank may get all of them.
    options.samples = SyntheticSamples::Kind::kConstant;
    ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
    EXPECT_OK(world->ForEachRank([](int, Engine& engine) {
      StepResult result;
      EXPECT_THAT(
          engine.RunStep(1, 0, &result),
          StatusIs(
              absl::StatusCode::kResourceExhausted,
              AllOf(HasSubstr("step 1: op "),
                    HasSubstr("(F0 layers.1.counts, microbatch 0): "),
                    HasSubstr("rows routed to the ranks of the EP group are"),
                    HasSubstr("the plan has room for 12 on a rank"))));
      return absl::OkStatus();
    }));
  }
}

TEST(StaticDispatcherTest, ABoundThatSufficesChangesNoResult) {
  LocalWorldOptions bounded = With(TwoRanks(), v1::DISPATCHER_ALLGATHER);
  bounded.job.mutable_model()->mutable_moe()->set_max_rows_factor(1.9);
  ASSERT_OK_AND_ASSIGN(const Outcome outcome, Train(std::move(bounded), 2));
  ASSERT_OK_AND_ASSIGN(const Outcome expected,
                       Train(With(TwoRanks(), v1::DISPATCHER_ALLGATHER), 2));
  EXPECT_EQ(outcome.parameters, expected.parameters);
}

// Small weights, but for the first projections of experts in the first layer
// that has them: what these make is too large.
class LargeWeights : public InitialWeights {
 public:
  absl::Status Read(const model::ParamDecl& param, int64_t begin,
                    absl::Span<float> out) const override {
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t at = begin + static_cast<int64_t>(i);
      const bool norm = param.shape.size() == 1;
      out[i] = norm ? 1.0f : 0.02f * static_cast<float>(at % 13 - 6);
      if (param.name == "layers.1.experts.gate_up") out[i] = 1e30f;
    }
    return absl::OkStatus();
  }
};

// What lies behind the rows that there are is not looked at: it is poisoned.
TEST(StaticDispatcherTest, AReplayNamesTheFirstNumberThatIsNotFinite) {
  const LargeWeights weights;
  std::vector<std::string> errors;
  for (const v1::Dispatcher dispatcher :
       {v1::DISPATCHER_ALLTOALL, v1::DISPATCHER_ALLGATHER}) {
    LocalWorldOptions options = With(TwoRanks(), dispatcher);
    options.initial_weights = &weights;
    ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
    std::string& error = errors.emplace_back();
    EXPECT_OK(world->ForEachRank([&](int rank, Engine& engine) {
      StepResult result;
      const absl::Status step = engine.RunStep(1, 0, &result);
      EXPECT_EQ(step.code(), absl::StatusCode::kOutOfRange) << step;
      if (rank == 0) error = std::string(step.message());
      return absl::OkStatus();
    }));
    EXPECT_THAT(error, HasSubstr("layers.1 experts forward: value layers.1."));
  }
  EXPECT_EQ(errors[0], errors[1]);
}

TEST(StaticDispatcherTest, ExchangesAreLeftOutOrMadeAlone) {
  const auto wire_bytes = [](v1::Exchanges exchanges) {
    LocalWorldOptions options = With(TwoRanks(), v1::DISPATCHER_ALLGATHER);
    options.job.mutable_bench()->set_balanced_routing(true);
    options.job.mutable_bench()->set_exchanges(exchanges);
    auto world = LocalWorld::Create(std::move(options));
    EXPECT_OK(world.status());
    auto results = (*world)->RunSteps(3);
    EXPECT_OK(results.status());
    std::vector<int64_t> bytes;
    for (const StepResult& step : (*results)[0]) {
      bytes.push_back(step.metrics.ep_wire_bytes());
    }
    return bytes;
  };
  const std::vector<int64_t> left_out = wire_bytes(v1::EXCHANGES_LEFT_OUT);
  EXPECT_GT(left_out[0], 0);
  EXPECT_EQ(left_out[1], 0);
  EXPECT_EQ(left_out[2], 0);
  const std::vector<int64_t> alone = wire_bytes(v1::EXCHANGES_ALONE);
  EXPECT_EQ(alone, std::vector<int64_t>(3, left_out[0]));
}

}  // namespace
}  // namespace weft::exec
