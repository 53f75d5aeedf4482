#include "worker/exec/stuck_check.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/comm/cancellation.h"
#include "kernels/comm/loopback/loopback.h"
#include "kernels/device/cpu/cpu_device.h"
#include "worker/exec/testing/local_world.h"

namespace weft::exec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::LocalWorld;
using testing::LocalWorldOptions;
using testing::MakeJob;
using ::testing::Not;
using testing::TinyJob;

// Two parameters "a" and "b", of which rank 0 of 2 holds one part each and rank
// 1 the other.
class TwoRanks {
 public:
  explicit TwoRanks(int64_t steps) {
    model_.params.resize(2);
    model_.params[0].name = "a";
    model_.params[1].name = "b";
    comm::LoopbackOptions options;
    options.ranks = 2;
    loopback_ = *comm::LoopbackWorld::Create(std::move(options));
    for (int rank = 0; rank < 2; ++rank) ranks_[rank] = MakeRank(rank, steps);
  }

  // What happens in a step: by parameter and rank.
  struct Step {
    float gradient[2][2] = {{1, 1}, {1, 1}};
    bool moves[2][2] = {{true, true}, {true, true}};
    bool counts = true;
    bool is_last = false;
  };

  // Both ranks must end alike.
  absl::Status Run(const Step& step) {
    ++step_;
    absl::Status results[2];
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] { results[rank] = RunRank(rank, step); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(results[0], results[1]);
    return results[0];
  }

 private:
  struct Rank {
    std::unique_ptr<device::Device> device;
    std::unique_ptr<comm::Cancellation> cancellation;
    std::unique_ptr<comm::Communicator> control;
    std::unique_ptr<device::Stream> compute;
    std::unique_ptr<device::Stream> reduce;
    float gradients[2] = {};
    std::unique_ptr<StuckCheck> check;
  };

  std::unique_ptr<Rank> MakeRank(int rank, int64_t steps) {
    auto r = std::make_unique<Rank>();
    r->device = *device::CreateCpuDevice({});
    r->cancellation = *comm::Cancellation::Create();
    r->control = *loopback_->CreateCommunicator("control", {0, 1}, rank,
                                                r->cancellation.get());
    r->compute = *r->device->CreateStream("compute");
    r->reduce = *r->device->CreateStream("reduce");
    StuckCheck::Options options;
    options.model = &model_;
    options.steps = steps;
    for (int param = 0; param < 2; ++param) {
      options.gradients.push_back(
          {param, DType::kF32, &r->gradients[param], 1});
    }
    options.device = r->device.get();
    options.control = r->control.get();
    r->check = *StuckCheck::Create(std::move(options));
    return r;
  }

  absl::Status RunRank(int rank, const Step& step) {
    Rank& r = *ranks_[rank];
    for (int param = 0; param < 2; ++param) {
      r.gradients[param] = step.gradient[param][rank];
      if (step.moves[param][rank]) r.check->changed_bits()[param] |= 8;
    }
    return r.check->End(step_, step.counts, step.is_last, *r.compute,
                        *r.reduce);
  }

  model::ModelDecl model_;
  std::unique_ptr<comm::LoopbackWorld> loopback_;
  std::unique_ptr<Rank> ranks_[2];
  int64_t step_ = 0;
};

TwoRanks::Step BStands() {
  TwoRanks::Step step;
  step.moves[1][0] = step.moves[1][1] = false;
  return step;
}

TEST(StuckCheckTest, NamesTheParameterThatStands) {
  TwoRanks ranks(3);
  EXPECT_OK(ranks.Run(BStands()));
  EXPECT_OK(ranks.Run(BStands()));
  EXPECT_THAT(ranks.Run(BStands()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("parameter b had a gradient in each of "
                                       "3 steps up to step 3 and did not move "
                                       "in any"),
                             Not(HasSubstr("others")))));
}

TEST(StuckCheckTest, StepsInARowMayLieInTwoWindows) {
  TwoRanks ranks(3);
  EXPECT_OK(ranks.Run({}));
  for (int i = 0; i < 4; ++i) EXPECT_OK(ranks.Run(BStands()));
  // Told at the end of the second window.
  EXPECT_THAT(ranks.Run({}), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("up to step 4")));
}

TEST(StuckCheckTest, FewerStepsInARowAreFine) {
  TwoRanks ranks(3);
  for (int i = 0; i < 6; ++i) {
    EXPECT_OK(ranks.Run(BStands()));
    EXPECT_OK(ranks.Run(BStands()));
    EXPECT_OK(ranks.Run({}));
  }
}

TEST(StuckCheckTest, AParameterMovesWhenOneRanksPartDoes) {
  TwoRanks ranks(2);
  TwoRanks::Step step = BStands();
  step.moves[1][1] = true;
  for (int i = 0; i < 6; ++i) EXPECT_OK(ranks.Run(step));
}

TEST(StuckCheckTest, AGradientOnOneRankIsOne) {
  TwoRanks ranks(2);
  TwoRanks::Step odd = BStands();
  odd.gradient[1][0] = 0;
  TwoRanks::Step even = BStands();
  even.gradient[1][1] = -0.0f;
  EXPECT_OK(ranks.Run(odd));
  EXPECT_THAT(ranks.Run(even), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(StuckCheckTest, WithoutAGradientNothingNeedMove) {
  TwoRanks ranks(2);
  TwoRanks::Step step = BStands();
  step.gradient[1][0] = step.gradient[1][1] = 0;
  for (int i = 0; i < 6; ++i) EXPECT_OK(ranks.Run(step));
}

TEST(StuckCheckTest, StepsThatNeedNotMoveAnythingDoNotCount) {
  TwoRanks ranks(2);
  TwoRanks::Step still = BStands();
  still.counts = false;
  EXPECT_OK(ranks.Run(BStands()));
  for (int i = 0; i < 4; ++i) EXPECT_OK(ranks.Run(still));
  EXPECT_THAT(ranks.Run(BStands()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("up to step 6")));
}

TEST(StuckCheckTest, TheLastStepEndsItsWindow) {
  TwoRanks ranks(40);  // longer than a window
  for (int i = 0; i < 39; ++i) EXPECT_OK(ranks.Run(BStands()));
  TwoRanks::Step last = BStands();
  last.is_last = true;
  EXPECT_THAT(ranks.Run(last), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("up to step 40")));
}

constexpr v1::ShardingStrategy kStrategies[] = {
    v1::SHARDING_STRATEGY_NO_SHARD, v1::SHARDING_STRATEGY_OPTIM,
    v1::SHARDING_STRATEGY_OPTIM_GRADS,
    v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS};

LocalWorldOptions JobOptions(v1::ShardingStrategy strategy, int world) {
  TinyJob tiny;
  tiny.world = world;
  tiny.ep = world == 4 ? 2 : 1;
  tiny.microbatches = 2;
  tiny.steps = 6;
  tiny.strategy = strategy;
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  options.job.mutable_guards()->set_stuck_parameter_steps(3);
  return options;
}

TEST(StuckParameterTest, ATrainingJobHasNone) {
  for (const auto strategy : kStrategies) {
    for (const int world : {1, 4}) {
      ASSERT_OK_AND_ASSIGN(auto w,
                           LocalWorld::Create(JobOptions(strategy, world)));
      EXPECT_OK(w->RunSteps(6).status());
    }
  }
}

TEST(StuckParameterTest, ParametersThatAreNotToMoveMayStand) {
  for (const bool frozen : {true, false}) {
    LocalWorldOptions options =
        JobOptions(v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS, 4);
    v1::ParameterGroup& group = *options.job.mutable_optimizer()->add_groups();
    group.add_parameters("layers.1.*");
    group.set_frozen(frozen);
    if (!frozen) group.set_learning_rate_scale(0);
    ASSERT_OK_AND_ASSIGN(auto w, LocalWorld::Create(std::move(options)));
    EXPECT_OK(w->RunSteps(6).status()) << "frozen " << frozen;
  }
}

TEST(StuckParameterTest, UpdatesThatVanishInFp32AreFound) {
  for (const auto strategy : kStrategies) {
    for (const int world : {1, 4}) {
      LocalWorldOptions options = JobOptions(strategy, world);
      options.job.mutable_optimizer()->set_learning_rate(1e-30);
      ASSERT_OK_AND_ASSIGN(auto w, LocalWorld::Create(std::move(options)));
      EXPECT_THAT(w->RunSteps(6).status(),
                  StatusIs(absl::StatusCode::kFailedPrecondition,
                           AllOf(HasSubstr("step 3: parameter embedding.table, "
                                           "like "),
                                 HasSubstr(" others, had a gradient"))));
    }
  }
}

// One bucket is optimized twice, and so another one never.
TEST(StuckParameterTest, ABucketThatNothingOptimizesIsFound) {
  for (const auto strategy : kStrategies) {
    LocalWorldOptions options = JobOptions(strategy, 4);
    std::string name;
    options.trust_edit = true;
    options.edit = [](schedule::Program& program) {
      for (schedule::Op& op : program.ops) {
        if (op.kind == schedule::OpKind::kOptimizer && op.bucket == 1) {
          op.bucket = 0;
        }
      }
    };
    ASSERT_OK_AND_ASSIGN(auto w, LocalWorld::Create(std::move(options)));
    const schedule::Plan& plan = w->plan();
    const fsdp::Bucket& bucket = plan.units.buckets[1];
    name = plan.model.params[bucket.placements[0].param].name;
    EXPECT_THAT(w->RunSteps(3).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr(absl::StrCat("parameter ", name))));
  }
}

// At the ends of a schedule updates may vanish in fp32.
TEST(StuckParameterTest, AFaintLearningRateIsNotMistakenForAFault) {
  LocalWorldOptions options = JobOptions(kStrategies[3], 1);
  v1::OptimizerConfig& optimizer = *options.job.mutable_optimizer();
  optimizer.set_learning_rate(1e-3);
  optimizer.set_warmup_steps(100000000);
  ASSERT_OK_AND_ASSIGN(auto w, LocalWorld::Create(std::move(options)));
  EXPECT_OK(w->RunSteps(6).status());
}

TEST(StuckParameterTest, NobodyLooksWhenTheJobSaysSo) {
  LocalWorldOptions options = JobOptions(kStrategies[3], 1);
  options.job.mutable_optimizer()->set_learning_rate(1e-30);
  options.job.mutable_guards()->set_stuck_parameter_steps(0);
  ASSERT_OK_AND_ASSIGN(auto w, LocalWorld::Create(std::move(options)));
  EXPECT_OK(w->RunSteps(6).status());
}

}  // namespace
}  // namespace weft::exec
