// The finiteness gate: a step whose gradients are not finite is replayed, and
// the error says where the first such number came from.
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

constexpr v1::ShardingStrategy kStrategies[] = {
    v1::SHARDING_STRATEGY_NO_SHARD, v1::SHARDING_STRATEGY_OPTIM,
    v1::SHARDING_STRATEGY_OPTIM_GRADS,
    v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS};

// Small numbers, all alike, but for what a test plants.
class PlantedWeights : public InitialWeights {
 public:
  struct Elements {
    int64_t begin = 0;
    int64_t end = 0;
  };
  PlantedWeights(std::string param, Elements elements, float value)
      : param_(std::move(param)), elements_(elements), value_(value) {}

  absl::Status Read(const model::ParamDecl& param, int64_t begin,
                    absl::Span<float> out) const override {
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t at = begin + static_cast<int64_t>(i);
      const bool norm = param.shape.size() == 1;
      out[i] = norm ? 1.0f : 0.02f * static_cast<float>(at % 13 - 6);
      const bool planted = elements_.begin <= at && at < elements_.end;
      if (param.name == param_ && planted) out[i] = value_;
    }
    return absl::OkStatus();
  }

 private:
  const std::string param_;
  const Elements elements_;
  const float value_;
};

// World, EP, order, strategy.
class GateTest : public ::testing::TestWithParam<
                     std::tuple<int, bool, v1::ShardingStrategy>> {
 protected:
  LocalWorldOptions Options() const {
    TinyJob tiny;
    const auto [world, combined, strategy] = GetParam();
    tiny.world = world;
    tiny.ep = world == 1 ? 1 : 2;
    tiny.microbatches = 2;
    tiny.combined = combined;
    tiny.delay_wgrad = combined;
    tiny.strategy = strategy;
    LocalWorldOptions options;
    options.job = MakeJob(tiny);
    return options;
  }

  // The error of the first step; every rank must end with the same.
  std::string ErrorOf(LocalWorldOptions options) const {
    auto world = LocalWorld::Create(std::move(options));
    EXPECT_OK(world.status());
    std::vector<std::string> errors((*world)->size());
    EXPECT_OK((*world)->ForEachRank([&](int rank, Engine& engine) {
      StepResult result;
      const absl::Status step = engine.RunStep(1, 0, &result);
      EXPECT_EQ(step.code(), absl::StatusCode::kOutOfRange) << step;
      errors[rank] = std::string(step.message());
      return absl::OkStatus();
    }));
    for (const std::string& error : errors) EXPECT_EQ(error, errors[0]);
    return errors[0];
  }
};

TEST_P(GateTest, AWeightThatIsNotFiniteIsNamed) {
  const PlantedWeights weights("layers.1.norm1", {11, 12}, kNan);
  LocalWorldOptions options = Options();
  options.initial_weights = &weights;
  EXPECT_THAT(ErrorOf(std::move(options)),
              AllOf(HasSubstr("step 1, before its first op: parameter "
                              "layers.1.norm1 has nan at element 11 (rank "),
                    HasSubstr("; the gradient norm is nan (loss nan)")));
}

TEST_P(GateTest, AnExpertsWeightIsCountedInTheWholeModel) {
  // The last element of the last expert.
  const int64_t last = 4 * 16 * 12 - 1;
  const PlantedWeights weights("layers.2.experts.down", {last, last + 1},
                               -std::numeric_limits<float>::infinity());
  LocalWorldOptions options = Options();
  // Every token goes to every expert.
  options.job.mutable_model()->mutable_moe()->set_top_k(4);
  options.initial_weights = &weights;
  EXPECT_THAT(
      ErrorOf(std::move(options)),
      HasSubstr(absl::StrCat("step 1, before its first op: parameter "
                             "layers.2.experts.down has -inf at element ",
                             last, " (rank ")));
}

TEST_P(GateTest, AnOverflowIsNamedWhereItHappens) {
  // Gate times up is too large for fp32, and for bf16.
  const PlantedWeights weights("layers.1.experts.gate_up", {0, 4 * 24 * 16},
                               1e30f);
  for (const auto format : {v1::NUMBER_FORMAT_FP32, v1::NUMBER_FORMAT_BF16}) {
    LocalWorldOptions options = Options();
    options.job.mutable_precision()->set_compute(format);
    options.job.mutable_precision()->set_gradients(format);
    options.initial_weights = &weights;
    EXPECT_THAT(ErrorOf(std::move(options)),
                AllOf(HasSubstr("step 1, microbatch 0, layers.1 experts "
                                "forward: value layers.1.act has inf at row "),
                      HasSubstr(" (rank "),
                      HasSubstr("the weights are those before the step")));
  }
}

std::string Name(const ::testing::TestParamInfo<GateTest::ParamType>& info) {
  return absl::StrCat("World", std::get<0>(info.param),
                      std::get<1>(info.param) ? "Combined" : "Sequential",
                      static_cast<int>(std::get<2>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(All, GateTest,
                         ::testing::Combine(::testing::Values(1, 4),
                                            ::testing::Bool(),
                                            ::testing::ValuesIn(kStrategies)),
                         Name);

// The error of a job whose rank 1 finds a NaN in its gradients, planted right
// before the control op of the first step reads them.
absl::Status ErrorOfOneFault(const TinyJob& tiny,
                             SyntheticSamples::Kind samples) {
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  options.samples = samples;
  int before_control = -1;
  options.edit = [&](schedule::Program& program) {
    for (const schedule::Op& op : program.ops) {
      before_control += op.stream == schedule::StreamKind::kReduce;
    }
  };
  std::atomic<float*> gradients{nullptr};
  options.allocated = [&](int rank, device::MemoryCategory category,
                          device::Buffer& buffer) {
    if (rank == 1 && category == device::MemoryCategory::kGradients) {
      // The last one is of a slice of the last rank.
      gradients = reinterpret_cast<float*>(buffer.data() + buffer.bytes()) - 1;
    }
  };
  std::atomic<int> reduced{0};
  options.finished = [&](int rank, absl::string_view stream) {
    if (rank != 1 || stream != "reduce") return;
    if (++reduced == before_control) *gradients = kNan;
  };
  ASSIGN_OR_RETURN(auto world, LocalWorld::Create(std::move(options)));
  return world->RunSteps(1).status();
}

// Memory is poisoned, so this shows, too, that a replay takes nothing for a
// result that no node writes.
TEST(ReplayGuardTest, AFaultThatDoesNotRepeatIsSaidToBeOne) {
  std::vector<TinyJob> jobs(5);
  jobs[1].optional_parts = true;
  jobs[2].tied = true;
  jobs[3].shared_expert = false;
  jobs[3].dense_layers = 0;
  jobs[4].strategy = v1::SHARDING_STRATEGY_OPTIM;
  for (TinyJob& tiny : jobs) {
    tiny.world = 2;
    tiny.ep = 2;
    tiny.microbatches = 2;
    for (const auto samples :
         {SyntheticSamples::Kind::kRule, SyntheticSamples::Kind::kConstant}) {
      EXPECT_THAT(
          ErrorOfOneFault(tiny, samples),
          StatusIs(absl::StatusCode::kOutOfRange,
                   AllOf(HasSubstr("step 1: the gradient norm is nan (loss "),
                         HasSubstr("a replay of the step found every value, "
                                   "gradient and parameter finite"))))
          << &tiny - jobs.data();
    }
  }
}

// Experts 2 and 3 live on ranks 1 and 3.
TEST(ReplayGuardTest, TheRankThatFindsItIsNamed) {
  TinyJob tiny;
  tiny.world = 4;
  tiny.ep = 2;
  const int64_t half = 2 * 24 * 16;
  const PlantedWeights weights("layers.1.experts.gate_up", {half, 2 * half},
                               1e30f);
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  options.job.mutable_model()->mutable_moe()->set_top_k(4);
  options.initial_weights = &weights;
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
  const absl::Status status = world->RunSteps(1).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kOutOfRange,
                               AllOf(HasSubstr("value layers.1.act has inf"),
                                     HasSubstr(" (rank 1); "))));
}

}  // namespace
}  // namespace weft::exec
