#include "worker/exec/engine.h"

#include <sched.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "schedule/happens_before.h"
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

TinyJob TwoRanks() {
  TinyJob tiny;
  tiny.world = 2;
  tiny.ep = 2;
  tiny.microbatches = 2;
  return tiny;
}

LocalWorldOptions OptionsFor(const TinyJob& tiny) {
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  return options;
}

TEST(EngineTest, TrainingReducesTheLoss) {
  TinyJob tiny = TwoRanks();
  tiny.sequences = 2;
  tiny.steps = 40;
  tiny.eval_batches = 4;
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(OptionsFor(tiny)));
  ASSERT_OK_AND_ASSIGN(auto results, world->RunSteps(tiny.steps));
  const double first = results[0].front().metrics.loss();
  const double last = results[0].back().metrics.loss();
  EXPECT_NEAR(first, std::log(29.0), 1.0);
  EXPECT_LT(last, 0.5 * first);
  EXPECT_EQ(results[1].back().metrics.loss(), last);
  ASSERT_OK(world->ForEachRank([&](int, Engine& engine) -> absl::Status {
    ASSIGN_OR_RETURN(const v1::EvalMetrics eval, engine.RunEval(4));
    EXPECT_EQ(eval.step(), 40);
    EXPECT_EQ(eval.tokens(), 4 * 8 * 6);
    EXPECT_LT(eval.loss(), 0.6 * first);
    return absl::OkStatus();
  }));
}

TEST(EngineTest, MetricsTellTheStep) {
  TinyJob tiny = TwoRanks();
  tiny.steps = 2;
  LocalWorldOptions options = OptionsFor(tiny);
  options.job.mutable_optimizer()->set_warmup_steps(2);
  options.samples = SyntheticSamples::Kind::kConstant;
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
  ASSERT_OK_AND_ASSIGN(auto results, world->RunSteps(2));
  const v1::StepMetrics& first = results[0][0].metrics;
  EXPECT_EQ(first.step(), 1);
  EXPECT_EQ(first.tokens(), 2 * 2 * 6);
  EXPECT_DOUBLE_EQ(first.learning_rate(), 0.005);
  EXPECT_DOUBLE_EQ(results[0][1].metrics.learning_rate(), 0.01);
  EXPECT_GT(first.grad_norm(), 0);
  // Two of four experts get all rows.
  EXPECT_DOUBLE_EQ(first.expert_imbalance(), 2);
  EXPECT_EQ(first.layer_imbalances_size(), 2);
  for (double imbalance : first.layer_imbalances()) {
    EXPECT_DOUBLE_EQ(imbalance, 2);
  }
  EXPECT_GT(first.step_seconds(), 0);
  EXPECT_GT(first.ep_seconds(), 0);
  EXPECT_GE(first.ep_seconds(), first.ep_exposed_seconds());
  EXPECT_GT(first.fsdp_seconds(), 0);
  EXPECT_GE(first.fsdp_seconds(), first.fsdp_exposed_seconds());
  EXPECT_GT(first.gather_seconds(), 0);
  EXPECT_LE(first.gather_seconds(), first.fsdp_seconds());
  EXPECT_LE(first.gather_exposed_seconds(), first.gather_seconds());
  EXPECT_GT(first.peak_device_bytes(),
            world->engine(0).main_weight_bytes() * 4);
  EXPECT_LE(first.peak_device_bytes(), world->device(0).peak_bytes());
  EXPECT_EQ(results[0][0].spans.size(), world->plan().train.ops.size());
}

TEST(EngineTest, TheLargestControlWordReachesAllRanks) {
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(OptionsFor(TwoRanks())));
  ASSERT_OK(world->ForEachRank([](int rank, Engine& engine) -> absl::Status {
    StepResult result;
    RETURN_IF_ERROR(engine.RunStep(1, rank == 1 ? 3 : 0, &result));
    EXPECT_EQ(result.control_word, 3);
    RETURN_IF_ERROR(engine.RunStep(2, 0, &result));
    EXPECT_EQ(result.control_word, 0);
    return absl::OkStatus();
  }));
}

TEST(EngineTest, ANormThatIsNotFiniteFailsTheStepAndLeavesTheWeights) {
  LocalWorldOptions options = OptionsFor(TwoRanks());
  options.job.mutable_optimizer()->set_learning_rate(1e30);
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
  ASSERT_OK(world->RunSteps(1).status());
  ASSERT_OK_AND_ASSIGN(const auto before, world->Parameters());
  EXPECT_THAT(
      world->RunSteps(1).status(),
      StatusIs(absl::StatusCode::kOutOfRange,
               AllOf(HasSubstr("step 2, "), HasSubstr("the gradient norm is"),
                     HasSubstr("nan"))));
  ASSERT_OK_AND_ASSIGN(const auto after, world->Parameters());
  EXPECT_EQ(before, after);
}

TEST(EngineTest, AnErrorNamesStepOpLayerAndMicrobatch) {
  LocalWorldOptions options = OptionsFor(TwoRanks());
  options.interceptor = [](absl::string_view, const comm::CollectiveTag& tag,
                           int rank) {
    const bool planted = rank == 1 && tag.layer == 1 && tag.microbatch == 1 &&
                         std::string(tag.op) == "dispatch.dgrad";
    return planted ? absl::DataLossError("planted") : absl::OkStatus();
  };
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
  EXPECT_THAT(world->RunSteps(1).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("step 1: op "),
                             HasSubstr("(B1 layers.1.dispatch, microbatch 1)"),
                             HasSubstr("planted"))));
}

// A reduction, and a later all-to-all that does not wait for it.
struct Beside {
  int reduce = -1;
  int exchange = -1;
};

bool IsDispatch(const schedule::Plan& plan, const schedule::Op& op) {
  return op.kind == schedule::OpKind::kNode &&
         plan.model.node(op.layer, op.node).kind == model::NodeKind::kDispatch;
}

Beside FindReduceBesideExchange(const schedule::Plan& plan) {
  const std::vector<schedule::Op>& ops = plan.train.ops;
  const schedule::HappensBefore before(plan.train);
  for (int exchange = 0; exchange < ops.size(); ++exchange) {
    if (!IsDispatch(plan, ops[exchange])) continue;
    for (int reduce = 0; reduce < exchange; ++reduce) {
      if (ops[reduce].kind == schedule::OpKind::kReduce &&
          plan.units.buckets[ops[reduce].bucket].axis == fsdp::Axis::kDp &&
          !before(reduce, exchange)) {
        return {reduce, exchange};
      }
    }
  }
  return {};
}

TEST(EngineTest, AFailedOpWakesTheCollectivesOfOtherStreams) {
  LocalWorldOptions options = OptionsFor(TwoRanks());
  ASSERT_OK_AND_ASSIGN(const schedule::Plan plan,
                       schedule::Compile(options.job));
  const Beside at = FindReduceBesideExchange(plan);
  ASSERT_GE(at.exchange, 0) << "no reduction runs beside an all-to-all";
  // Rank 0 waits in a reduction that rank 1 does not come to, when its
  // all-to-all fails.
  Notification in_reduce;
  Notification has_failed;
  options.interceptor = [&](absl::string_view, const comm::CollectiveTag& tag,
                            int rank) {
    if (tag.op_index == at.reduce && rank == 0) in_reduce.Notify();
    if (tag.op_index == at.reduce && rank == 1) {
      EXPECT_TRUE(has_failed.WaitForNotificationWithTimeout(absl::Seconds(20)))
          << "rank 0 waits in its reduction";
    }
    if (tag.op_index != at.exchange || rank != 0) return absl::OkStatus();
    in_reduce.WaitForNotification();
    return absl::DataLossError("planted");
  };
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
  const absl::Status status = world->ForEachRank([&](int rank, Engine& engine) {
    StepResult result;
    const absl::Status step = engine.RunStep(1, 0, &result);
    if (rank == 0) has_failed.Notify();
    return step;
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                               AllOf(HasSubstr("step 1: op "),
                                     HasSubstr(".dispatch, microbatch "),
                                     HasSubstr("planted"))));
}

TEST(EngineTest, FailingTheDeviceEndsTheStep) {
  LocalWorldOptions options = OptionsFor(TwoRanks());
  LocalWorld* running = nullptr;
  options.interceptor = [&](absl::string_view, const comm::CollectiveTag& tag,
                            int rank) {
    if (rank == 0 && std::string(tag.op) == "combine.dgrad") {
      running->device(0).Fail(absl::CancelledError("told to stop"));
    }
    return absl::OkStatus();
  };
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
  running = world.get();
  EXPECT_THAT(world->RunSteps(1).status(),
              StatusIs(absl::StatusCode::kCancelled,
                       HasSubstr("rank 0: step 1: told to stop")));
}

TEST(EngineTest, FailingTheDeviceEndsThePreparation) {
  TinyJob tiny;
  tiny.layers = 12;
  tiny.microbatches = 8;
  LocalWorldOptions options = OptionsFor(tiny);
  size_t ops = 0;
  options.edit = [&](schedule::Program& program) { ops = program.ops.size(); };
  int events = 0;
  options.creates_event = [&](device::Device& device) {
    ++events;
    device.Fail(absl::CancelledError("told to stop"));
  };
  EXPECT_THAT(
      LocalWorld::Create(std::move(options)).status(),
      StatusIs(absl::StatusCode::kCancelled, HasSubstr("told to stop")));
  // It did not go on to the end.
  EXPECT_GT(ops, 1000);
  EXPECT_LT(events, 300);
}

// A program that was changed, and what is said of it.
struct WrongProgram {
  const char* message;
  void (*edit)(schedule::Program&);
};

const WrongProgram kWrongValues[] = {
    {"lies in the wrong space",
     [](schedule::Program& p) { p.values[0].space = model::Space::kHost; }},
    {"value 1",
     [](schedule::Program& p) { p.values[1].offset = p.arena_bytes; }},
    {"args", [](schedule::Program& p) { p.ops.back().args.resize(7); }},
    {"arena",
     [](schedule::Program& p) {
       for (schedule::Value& value : p.values) {
         if (value.bytes >= 64) {
           value.offset = std::numeric_limits<int64_t>::max() / 64 * 64;
         }
       }
     }},
    {"host value",
     [](schedule::Program& p) {
       for (schedule::Op& op : p.ops) {
         if (op.kind == schedule::OpKind::kHostWait) op.args[0] = 0;
       }
     }},
    {"is not head.loss of microbatch",
     [](schedule::Program& p) {
       for (schedule::Op& op : p.ops) {
         if (op.kind != schedule::OpKind::kControl) continue;
         std::swap(op.args[0], op.args[1]);
       }
     }},
    {"does not exist",
     [](schedule::Program& p) {
       for (schedule::Op& op : p.ops) {
         if (!op.args.empty()) op.args[0] = 1 << 20;
       }
     }},
};

const WrongProgram kWrongOps[] = {
    {"waits for op", [](schedule::Program& p) { p.ops[0].waits = {0}; }},
    {"kind 1",
     [](schedule::Program& p) { p.kind = schedule::ProgramKind::kEval; }},
    {"microbatches", [](schedule::Program& p) { p.microbatches = 9; }},
    {"names no microbatch",
     [](schedule::Program& p) {
       for (schedule::Value& value : p.values) {
         if (value.microbatch == 1) value.microbatch = 2;
       }
       for (schedule::Op& op : p.ops) {
         if (op.microbatch == 1) op.microbatch = 2;
       }
     }},
    {"on stream compute",
     [](schedule::Program& p) {
       for (schedule::Op& op : p.ops) {
         op.stream = schedule::StreamKind::kCompute;
       }
     }},
};

class WrongProgramTest : public ::testing::TestWithParam<WrongProgram> {};

TEST_P(WrongProgramTest, IsRefused) {
  LocalWorldOptions options = OptionsFor(TwoRanks());
  options.edit = GetParam().edit;
  EXPECT_THAT(LocalWorld::Create(std::move(options)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(Values, WrongProgramTest,
                         ::testing::ValuesIn(kWrongValues));
INSTANTIATE_TEST_SUITE_P(Ops, WrongProgramTest, ::testing::ValuesIn(kWrongOps));

// Rows that rank 1 got, of all that both ranks sent.
int64_t Received(const std::vector<std::vector<StepResult>>& results) {
  int64_t all[2] = {};
  for (int rank = 0; rank < 2; ++rank) {
    for (int64_t rows : results[rank][0].received_rows) all[rank] += rows;
  }
  // 6 tokens, top-2, 2 layers with experts, 2 microbatches, 2 ranks.
  EXPECT_EQ(all[0] + all[1], 6 * 2 * 2 * 2 * 2);
  return all[1];
}

TEST(EngineTest, TraceSaysHowManyCoresARankMayUse) {
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(OptionsFor(TwoRanks())));
  ASSERT_OK_AND_ASSIGN(auto results, world->RunSteps(1));
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const std::string path = absl::StrCat(::testing::TempDir(), "/cores.json");
  const absl::Status written = world->engine(0).WriteTrace(results[0][0], path);
  ASSERT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
  ASSERT_OK(written);
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file)["otherData"]["cores"], 1);
}

TEST(EngineTest, TraceHasARowForEveryStreamAndAnEventForEveryOp) {
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(OptionsFor(TwoRanks())));
  ASSERT_OK_AND_ASSIGN(auto results, world->RunSteps(1));
  const std::string path = absl::StrCat(::testing::TempDir(), "/trace.json");
  ASSERT_OK(world->engine(1).WriteTrace(results[1][0], path));
  std::ifstream file(path);
  const nlohmann::json trace = nlohmann::json::parse(file);
  int rows = 0;
  size_t events = 0;
  bool found = false;
  int64_t routed = 0;
  for (const auto& event : trace["traceEvents"]) {
    EXPECT_EQ(event["pid"], 1);
    rows += event["name"] == "thread_name";
    events += event["ph"] == "X";
    if (event["ph"] == "X" && event["args"].contains("rows")) {
      routed += event["args"]["rows"].get<int64_t>();
    }
    found |= event["name"] == "F1 layers.2.dispatch" && event["tid"] == 1;
  }
  EXPECT_EQ(trace["otherData"]["rank"], 1);
  EXPECT_EQ(trace["otherData"]["kind"], "measured");
  EXPECT_GT(trace["otherData"]["step_seconds"], 0);
  EXPECT_EQ(routed, Received(results));
  EXPECT_EQ(rows, schedule::kNumStreams);
  EXPECT_TRUE(found);
  size_t launched = 0;
  for (const schedule::Op& op : world->plan().train.ops) {
    launched += op.kind != schedule::OpKind::kHostWait;
  }
  EXPECT_EQ(events, launched);
}

TEST(EngineTest, InitialWeightsDoNotDependOnWorldEpOrStrategy) {
  TinyJob tiny;
  ASSERT_OK_AND_ASSIGN(auto one, LocalWorld::Create(OptionsFor(tiny)));
  ASSERT_OK_AND_ASSIGN(const auto expected, one->Parameters());
  for (int ep : {1, 2, 4}) {
    tiny.world = 4;
    tiny.ep = ep;
    tiny.strategy = ep == 1   ? v1::SHARDING_STRATEGY_OPTIM
                    : ep == 2 ? v1::SHARDING_STRATEGY_NO_SHARD
                              : v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS;
    ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(OptionsFor(tiny)));
    EXPECT_THAT(world->Parameters(), IsOkAndHolds(expected)) << ep;
  }
}

TEST(EngineTest, HashesAreThoseOfPlanAndUnits) {
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(OptionsFor(TwoRanks())));
  EXPECT_EQ(world->engine(0).assignment_hash(), world->plan().units.Hash());
  const schedule::Plan& plan = world->plan();
  for (int rank = 0; rank < world->size(); ++rank) {
    EXPECT_EQ(world->engine(rank).collective_hash(),
              schedule::CollectiveHash(plan.train, plan.model, plan.units));
  }
}

}  // namespace
}  // namespace weft::exec
