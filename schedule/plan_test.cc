#include "schedule/plan.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/arena.h"
#include "schedule/testing/jobs.h"

namespace weft::schedule {
namespace {

using ::testing::HasSubstr;

// Calls `fn(job)` for orders x wgrad x strategies x microbatches x worlds x EP.
template <typename Fn>
void ForEachJob(Fn fn) {
  for (auto order :
       {v1::SCHEDULE_ORDER_SEQUENTIAL, v1::SCHEDULE_ORDER_COMBINED_1F1B}) {
    for (bool delay : {false, true}) {
      for (int strategy = v1::SHARDING_STRATEGY_NO_SHARD;
           strategy <= v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS; ++strategy) {
        for (int microbatches : {1, 2, 3, 5}) {
          for (int world : {1, 2, 4}) {
            for (int ep = 1; ep <= world; ep *= 2) {
              v1::TrainingJob job = SmallJob({3, microbatches, world, ep});
              job.mutable_schedule()->set_order(order);
              job.mutable_schedule()->set_delay_wgrad(delay);
              job.mutable_fsdp()->set_strategy(
                  static_cast<v1::ShardingStrategy>(strategy));
              job.mutable_model()->set_tie_embeddings(microbatches == 3);
              if (microbatches >= 3) {
                v1::RouterLossConfig& losses =
                    *job.mutable_model()->mutable_moe()->mutable_router_loss();
                losses.set_global_aux(1);
                losses.set_aux(microbatches - 3);
              }
              if (microbatches == 5) job.mutable_model()->add_dense_layers(1);
              if (microbatches == 2) job.mutable_fsdp()->clear_prefetch_bytes();
              job.mutable_eval()->set_batches(1);
              fn(job);
            }
          }
        }
      }
    }
  }
}

// A program in text that leaves nothing out.
std::string EveryField(const Program& program) {
  std::string text =
      absl::StrCat(static_cast<int>(program.kind), " ", program.microbatches,
                   " ", static_cast<int>(program.strategy), " ",
                   program.arena_bytes, " ", program.host_arena_bytes, "\n");
  for (const Op& op : program.ops) {
    absl::StrAppend(&text, Name(op.kind), " ", Name(op.stream), " ", op.layer,
                    " ", op.node, " ", static_cast<int>(op.phase), " ",
                    op.microbatch, " ", op.bucket, " ", op.accumulate, " args ",
                    absl::StrJoin(op.args, ","), " waits ",
                    absl::StrJoin(op.waits, ","));
    for (const ParamUse& use : op.params) {
      absl::StrAppend(&text, " param ", use.param, "@", use.value);
    }
    for (const GradUse& use : op.grads) {
      absl::StrAppend(&text, " grad ", use.param, "@", use.value, "+",
                      use.accumulate);
    }
    absl::StrAppend(&text, "\n");
  }
  for (const Value& value : program.values) {
    absl::StrAppend(&text, static_cast<int>(value.kind), " ", value.decl, " ",
                    value.bucket, " ", value.microbatch, " ",
                    static_cast<int>(value.space), " ", value.bytes, " ",
                    value.offset, "\n");
  }
  return text;
}

TEST(CompileTest, EveryLegalCombinationVerifies) {
  int plans = 0;
  ForEachJob([&](const v1::TrainingJob& job) {
    ++plans;
    EXPECT_OK(Compile(job)) << job.ShortDebugString();
  });
  EXPECT_EQ(plans, 2 * 2 * 4 * 4 * 6);
}

TEST(CompileTest, OnTheWireAndBackIsTheSamePlan) {
  ForEachJob([&](const v1::TrainingJob& job) {
    ASSERT_OK_AND_ASSIGN(Plan plan, Compile(job));
    ASSERT_OK_AND_ASSIGN(Program copy,
                         FromProto(ToProto(plan, plan.train), Declare(job)));
    EXPECT_EQ(ToText(plan, copy), ToText(plan, plan.train));
    EXPECT_EQ(EveryField(copy), EveryField(plan.train));
  });
}

// One program serves all ranks, and what a rank is sent fits gRPC's default
// message.
TEST(CompileTest, ALargePlanIsSmallOnTheWire) {
  const v1::TrainingJob job = LargeJob(/*layers=*/61, /*microbatches=*/64);
  ASSERT_OK_AND_ASSIGN(Plan plan, Compile(job));
  // Each microbatch has 7 forward, 6 dgrad and 3 wgrad phases of every layer,
  // and 8 of embedding and head. The other ops move buckets and wait.
  int phases = 0;
  for (const Op& op : plan.train.ops) phases += op.kind == OpKind::kNode;
  EXPECT_EQ(phases, 64 * (61 * 16 + 8));
  const v1::PlanSummary summary = Summarize(plan);
  EXPECT_EQ(summary.ops(), 105102);
  EXPECT_EQ(summary.classes(), 1) << "of 2,048 ranks";
  const std::vector<int64_t> live = LiveBytes(plan.train);
  const int64_t peak = *std::max_element(live.begin(), live.end());
  EXPECT_GE(summary.arena_bytes(), peak);
  EXPECT_LT(summary.arena_bytes(), 2 * peak);
  const size_t bytes = ToProto(plan, plan.train).ByteSizeLong() +
                       ToProto(Binding{2047, plan.world}).ByteSizeLong();
  EXPECT_LT(bytes, size_t{4} << 20);
}

TEST(CompileTest, ReuseOfMemoryKeepsTheArenaNearTheLiveSet) {
  v1::TrainingJob job = SmallJob({6, 8, 4, 2});
  ASSERT_OK_AND_ASSIGN(Plan plan, Compile(job));
  const std::vector<int64_t> live = LiveBytes(plan.train);
  const int64_t peak = *std::max_element(live.begin(), live.end());
  int64_t sum = 0;
  for (const Value& value : plan.train.values) sum += value.bytes;
  EXPECT_GE(plan.train.arena_bytes, peak);
  EXPECT_LT(plan.train.arena_bytes, 2 * peak);
  EXPECT_LT(plan.train.arena_bytes, sum / 3);
}

TEST(CompileTest, TheArenaDoesNotGrowWithTheMicrobatches) {
  for (bool delay : {false, true}) {
    v1::TrainingJob job = SmallJob({4, 4, 4, 2});
    job.mutable_schedule()->set_delay_wgrad(delay);
    ASSERT_OK_AND_ASSIGN(Plan four, Compile(job));
    job.mutable_batch()->set_global_batch(4 * 32);
    ASSERT_OK_AND_ASSIGN(Plan thirty_two, Compile(job));
    EXPECT_LT(thirty_two.train.arena_bytes, 1.1 * four.train.arena_bytes);
  }
}

TEST(CompileTest, ASmallReduceBudgetSavesMemoryAndAddsWaits) {
  v1::TrainingJob job = SmallJob({4, 2, 4, 2});
  // Wide layers, so that gradients decide how much memory there is.
  job.mutable_model()->set_hidden_size(64);
  job.mutable_fsdp()->set_reduce_bytes(int64_t{1} << 40);
  ASSERT_OK_AND_ASSIGN(Plan unbounded, Compile(job));
  job.mutable_fsdp()->set_reduce_bytes(1);
  ASSERT_OK_AND_ASSIGN(Plan bounded, Compile(job));
  auto waits_for_reductions = [](const Plan& plan) {
    int waits = 0;
    for (const Op& op : plan.train.ops) {
      if (op.kind != OpKind::kNode) continue;
      for (int wait : op.waits) {
        waits += plan.train.ops[wait].kind == OpKind::kReduce;
      }
    }
    return waits;
  };
  EXPECT_EQ(waits_for_reductions(unbounded), 0);
  EXPECT_GT(waits_for_reductions(bounded), 0);
  EXPECT_LT(bounded.train.arena_bytes, unbounded.train.arena_bytes);
}

TEST(CompileTest, OneHostWaitAForwardOfAnMoeLayerAndNoneInBackward) {
  ASSERT_OK_AND_ASSIGN(Plan plan, Compile(SmallJob({3, 4, 2, 2})));
  int waits = 0;
  for (const Op& op : plan.train.ops) {
    if (op.kind != OpKind::kHostWait) continue;
    ++waits;
    EXPECT_EQ(op.phase, model::Phase::kForward);
  }
  EXPECT_EQ(waits, 3 * 4);
}

TEST(VerifyTest, RefusesAPlanWhoseProgramsDisagree) {
  v1::TrainingJob job = SmallJob({1, 2, 2, 2});
  job.mutable_eval()->set_batches(1);
  ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(job));
  EXPECT_OK(Verify(plan));
  Plan broken = plan;
  broken.eval = plan.train;
  EXPECT_THAT(Verify(broken),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("eval")));
  job.mutable_fsdp()->set_strategy(v1::SHARDING_STRATEGY_NO_SHARD);
  broken = plan;
  broken.eval = Compile(job)->eval;
  EXPECT_THAT(Verify(broken),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("no_shard")));
}

TEST(CollectiveHashTest, SeesWhatGoesOverTheWire) {
  const v1::TrainingJob job = SmallJob({2, 1, 4, 2});
  const auto hash = [](const v1::TrainingJob& job) {
    const Plan plan = *Compile(job);
    return CollectiveHash(plan.train, plan.model, plan.units);
  };
  v1::TrainingJob same = job;
  same.mutable_model()->set_norm_epsilon(1e-3);
  EXPECT_EQ(hash(same), hash(job));
  v1::TrainingJob other = job;
  other.mutable_data()->set_sequence_length(16);
  EXPECT_NE(hash(other), hash(job)) << "rows of an exchange";
  v1::TrainingJob narrow = job;
  narrow.mutable_precision()->set_gradients(v1::NUMBER_FORMAT_BF16);
  EXPECT_NE(hash(narrow), hash(job)) << "bytes of a gradient";
  // With one microbatch both reduce each bucket once, one to all ranks and one
  // to shards.
  v1::TrainingJob no_shard = job;
  no_shard.mutable_fsdp()->set_strategy(v1::SHARDING_STRATEGY_NO_SHARD);
  v1::TrainingJob optim = job;
  optim.mutable_fsdp()->set_strategy(v1::SHARDING_STRATEGY_OPTIM);
  EXPECT_NE(hash(no_shard), hash(optim));
}

class FromProtoTest : public testing::Test {
 protected:
  FromProtoTest() : plan_(*Compile(SmallJob({1, 1, 2, 2}))) {}

  // Expects a program with `edit` done to be refused for the reason.
  void ExpectRefused(const std::function<void(plan::v1::Program&)>& edit,
                     const std::string& reason) {
    plan::v1::Program proto = ToProto(plan_, plan_.train);
    edit(proto);
    EXPECT_THAT(FromProto(proto, plan_).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("program: " + reason)));
  }

  const Plan plan_;
};

constexpr int32_t kLowest = std::numeric_limits<int32_t>::min();

TEST_F(FromProtoTest, RefusesAProgramThatReadsOutOfRange) {
  ExpectRefused([](auto& p) { p.mutable_ops(0)->set_args(0, 100000); },
                "plan is broken: shape: op 0: uses value 100000");
  ExpectRefused([](auto& p) { p.mutable_values()->set_offsets(1, 1LL << 50); },
                "plan is broken: values: op 1: value 1 of ");
  ExpectRefused([](auto& p) { p.mutable_values()->set_offsets(1, 1LL << 60); },
                "value 1: offset=1152921504606846976 is not in [0, 2^57)");
  ExpectRefused([](auto& p) { p.mutable_ops(2)->set_gathered(0, 5000); },
                "op 2: gathered=5000 is not in [0, ");
}

TEST_F(FromProtoTest, RefusesWhatTheJobDoesNotDeclare) {
  ExpectRefused([](auto& p) { p.mutable_ops(1)->set_layer(90); },
                "op 1: layer=90, node=1, phase=0 is no phase of the model");
  ExpectRefused([](auto& p) { p.mutable_ops(1)->set_phase(1); },
                "op 1: layer=1, node=1, phase=1 is no phase of the model");
  ExpectRefused([](auto& p) { p.mutable_values()->set_holds(1, 5000); },
                "value 1: holds=5000 is not in [0, ");
  ExpectRefused([](auto& p) { p.mutable_values()->set_holds(0, 9); },
                "value 0: holds=9 is not in [0, 3)");
  ExpectRefused([](auto& p) { p.mutable_ops(1)->set_microbatch(5); },
                "plan is broken: shape: op 1: ");
}

TEST(CompileTest, TheControlOpMovesTheBiasesOfExperts) {
  v1::TrainingJob job = SmallJob({2, 2, 2, 2});
  v1::MoeConfig& moe = *job.mutable_model()->mutable_moe();
  moe.set_score_function(v1::SCORE_FUNCTION_SIGMOID);
  moe.mutable_expert_bias()->set_update_rate(0.1);
  job.mutable_eval()->set_batches(1);
  ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(job));
  EXPECT_THAT(ToText(plan, plan.train), HasSubstr("(moves 2 expert biases)"));
  EXPECT_THAT(ToText(plan, *plan.eval),
              ::testing::Not(HasSubstr("expert biases")));
}

// Enums travel as their numbers: a worker and a coordinator of different builds
// must mean the same by them, or else the protocol's version must change.
TEST(WireTest, NumbersOfEnumsAreFixed) {
  const auto names = [](auto last) {
    std::string all;
    for (int i = 0; i <= static_cast<int>(last); ++i) {
      absl::StrAppend(&all, Name(static_cast<decltype(last)>(i)), " ");
    }
    return all;
  };
  EXPECT_EQ(names(OpKind::kOptimizer),
            "node host_wait gather release add reduce control optimizer ");
  EXPECT_EQ(names(StreamKind::kReduce), "compute ep gather reduce ");
  EXPECT_EQ(names(model::Phase::kWgrad), "forward dgrad wgrad ");
  EXPECT_EQ(names(fsdp::Strategy::kOptimGradsParams),
            "no_shard optim optim_grads optim_grads_params ");
  EXPECT_EQ(static_cast<int>(ValueKind::kActivation), 0);
  EXPECT_EQ(static_cast<int>(ValueKind::kGathered), 1);
  EXPECT_EQ(static_cast<int>(ValueKind::kGradient), 2);
  EXPECT_EQ(static_cast<int>(ProgramKind::kTrain), 0);
  EXPECT_EQ(static_cast<int>(ProgramKind::kEval), 1);
}

TEST_F(FromProtoTest, RefusesNumbersThatAreNoEnum) {
  ExpectRefused([](auto& p) { p.set_kind(2); }, "kind=2 is not in [0, 1]");
  ExpectRefused([](auto& p) { p.mutable_ops(2)->set_kind(77); },
                "op 2: kind=77 is not in [0, 8]");
  ExpectRefused([](auto& p) { p.mutable_ops(2)->set_stream(-1); },
                "op 2: stream=-1 is not in [0, 3]");
  ExpectRefused([](auto& p) { p.mutable_values()->set_kinds(3, kLowest); },
                "value 3: kind=-2147483648 is not in [0, 2]");
}

TEST_F(FromProtoTest, RefusesIndicesThatAreNegative) {
  ExpectRefused([](auto& p) { p.mutable_ops(0)->set_layer(kLowest); },
                "op 0: layer=-2147483648 is negative");
  ExpectRefused([](auto& p) { p.mutable_ops(0)->set_bucket(-1); },
                "op 0: bucket=-1 is negative");
  ExpectRefused([](auto& p) { p.mutable_values()->set_holds(1, kLowest); },
                "value 1: holds=-2147483648 is not in [0, ");
  ExpectRefused([](auto& p) { p.mutable_ops(5)->add_wait_distances(kLowest); },
                "op 5: wait_distances=-2147483648 is not in [1, 5]");
  ExpectRefused([](auto& p) { p.mutable_ops(5)->add_wait_distances(6); },
                "op 5: wait_distances=6 is not in [1, 5]");
}

TEST_F(FromProtoTest, RefusesListsThatDifferInLength) {
  ExpectRefused([](auto& p) { p.mutable_values()->add_kinds(0); }, "values: ");
  ExpectRefused([](auto& p) { p.mutable_ops(1)->add_grad_accumulates(true); },
                "op 1: 1 grad_accumulates for 0 gradients");
}

TEST_F(FromProtoTest, RefusesTheProgramOfAnotherJob) {
  ExpectRefused([](auto& p) { p.set_microbatches(9); },
                "microbatches=9, the job has 1");
  ExpectRefused(
      [](auto& p) {
        p.set_strategy(static_cast<int>(fsdp::Strategy::kNoShard));
      },
      "strategy=no_shard, the job has optim_grads_params");
}

TEST(BindingFromProtoTest, RefusesARankThatIsNotOfTheWorld) {
  const auto refusal = [](int rank, int world, int ep) {
    plan::v1::Binding proto;
    proto.set_rank(rank);
    proto.set_world(world);
    proto.set_ep(ep);
    return std::string(FromProto(proto).status().message());
  };
  EXPECT_EQ(refusal(3, 4, 2), "");
  EXPECT_EQ(refusal(4, 4, 2), "binding: rank=4 is not in [0, 4)");
  EXPECT_EQ(refusal(0, 0, 1), "binding: world=0 is not positive");
  EXPECT_EQ(refusal(0, 4, 3), "binding: ep=3 does not divide world=4");
}

struct Golden {
  const char* file;
  v1::ScheduleOrder order;
  bool delay;
  v1::ShardingStrategy strategy;
  JobSize size;
  bool tied = false;
};

class GoldenPlanTest : public testing::TestWithParam<Golden> {};

// The plans are kept as text. After a deliberate change, run the test with
// WEFT_UPDATE_GOLDEN=<folder> and review the difference.
TEST_P(GoldenPlanTest, TextIsUnchanged) {
  v1::TrainingJob job = SmallJob(GetParam().size);
  job.mutable_schedule()->set_order(GetParam().order);
  job.mutable_schedule()->set_delay_wgrad(GetParam().delay);
  job.mutable_fsdp()->set_strategy(GetParam().strategy);
  job.mutable_model()->set_tie_embeddings(GetParam().tied);
  ASSERT_OK_AND_ASSIGN(Plan plan, Compile(job));
  const std::string text = ToText(plan, plan.train);
  if (const char* folder = std::getenv("WEFT_UPDATE_GOLDEN")) {
    std::ofstream(std::string(folder) + "/" + GetParam().file) << text;
  }
  std::ifstream file(std::string("schedule/testdata/") + GetParam().file);
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text, expected.str());
}

INSTANTIATE_TEST_SUITE_P(
    Plans, GoldenPlanTest,
    testing::Values(Golden{"sequential_mb1_no_shard.txt",
                           v1::SCHEDULE_ORDER_SEQUENTIAL,
                           false,
                           v1::SHARDING_STRATEGY_NO_SHARD,
                           {1, 1, 2, 2}},
                    Golden{"sequential_mb2_tied_no_shard.txt",
                           v1::SCHEDULE_ORDER_SEQUENTIAL,
                           false,
                           v1::SHARDING_STRATEGY_NO_SHARD,
                           {1, 2, 1, 1},
                           true},
                    Golden{"combined_mb2_delay_zero3.txt",
                           v1::SCHEDULE_ORDER_COMBINED_1F1B,
                           true,
                           v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS,
                           {2, 2, 4, 2}}));

int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(DrawTimelineTest, NamesEveryOpThatTakesTime) {
  ASSERT_OK_AND_ASSIGN(Plan plan, Compile(SmallJob({2, 2, 2, 2})));
  int ops = 0;
  for (const Op& op : plan.train.ops) {
    ops += op.kind != OpKind::kHostWait && op.kind != OpKind::kRelease;
  }
  const std::string text = DrawTimeline(plan, plan.train, 1 << 20);
  EXPECT_EQ(CountOf(text, "["), ops);
  EXPECT_EQ(CountOf(text, "]"), ops);
  EXPECT_THAT(text, HasSubstr("[F1 L0.attn"));
  EXPECT_THAT(text, HasSubstr("[B0 L1.dispatch"));
}

TEST(DrawTimelineTest, GoesOnInFurtherBlocksThatFit) {
  ASSERT_OK_AND_ASSIGN(Plan plan, Compile(SmallJob({2, 2, 2, 2})));
  const std::string text = DrawTimeline(plan, plan.train, 90);
  EXPECT_GT(CountOf(text, "compute |"), 1);
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(line.size(), 90) << line;
  }
}

TEST(DrawTimelineTest, SaysHowMuchItLeavesOut) {
  ASSERT_OK_AND_ASSIGN(Plan plan, Compile(SmallJob({8, 4, 2, 2})));
  const std::string text = DrawTimeline(plan, plan.train, 30);
  EXPECT_EQ(CountOf(text, "compute |"), 100);
  EXPECT_THAT(text, HasSubstr(" more blocks"));
}

}  // namespace
}  // namespace weft::schedule
