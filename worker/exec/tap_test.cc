#include "worker/exec/tap.h"

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "checkpoint/format/safetensors_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/exec/testing/local_world.h"

namespace weft::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LocalWorld;
using testing::LocalWorldOptions;
using testing::MakeJob;
using testing::TinyJob;

// A tapped tensor.
struct Tensor {
  std::vector<int64_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, Tensor>;

template <typename T>
std::vector<T> As(const Tensor& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

TinyJob TwoRanks() {
  TinyJob tiny;
  tiny.world = 2;
  tiny.ep = 2;
  tiny.microbatches = 2;
  return tiny;
}

LocalWorldOptions Tapping(const TinyJob& tiny, int64_t step,
                          const std::vector<std::string>& globs) {
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  options.job.mutable_output()->set_tap_step(step);
  for (const std::string& glob : globs) {
    options.job.mutable_output()->add_taps(glob);
  }
  return options;
}

Tensors TapsOf(LocalWorld& world, int rank) {
  const std::string folder = ::testing::TempDir();
  EXPECT_OK(world.engine(rank).WriteTaps(folder));
  auto file = checkpoint::SafetensorsFile::Open(
      absl::StrFormat("%s/rank-%05d.safetensors", folder, rank));
  EXPECT_OK(file.status());
  Tensors tensors;
  for (const checkpoint::SafetensorsView& view : file->tensors()) {
    Tensor& tensor = tensors[std::string(view.name)];
    tensor.shape.assign(view.shape.begin(), view.shape.end());
    tensor.bytes = std::string(view.bytes);
  }
  return tensors;
}

TEST(TapTest, TokensAreThoseOfTheStep) {
  TinyJob tiny;
  tiny.microbatches = 2;
  ASSERT_OK_AND_ASSIGN(auto world,
                       LocalWorld::Create(Tapping(tiny, 2, {"*.tokens"})));
  ASSERT_OK(world->RunSteps(3).status());
  testing::SyntheticSamples samples(29, testing::SyntheticSamples::Kind::kRule);
  const Tensors taps = TapsOf(*world, 0);
  EXPECT_EQ(taps.size(), 2);
  for (int m = 0; m < 2; ++m) {
    std::vector<int32_t> sample(7);
    ASSERT_OK(samples.Read(data::Split::kTrain, 2 + m, absl::MakeSpan(sample)));
    sample.pop_back();
    const Tensor& tokens = taps.at(absl::StrCat("embedding.tokens@", m));
    EXPECT_THAT(tokens.shape, ElementsAre(6, 1));
    EXPECT_EQ(As<int32_t>(tokens), sample);
  }
}

void ExpectTheRowsThatWereThere(v1::Dispatcher dispatcher) {
  LocalWorldOptions options =
      Tapping(TwoRanks(), 1,
              {"layers.1.rows", "layers.1.counts*", "layers.1.rows.grad"});
  options.job.mutable_parallel()->set_dispatcher(dispatcher);
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
  ASSERT_OK(world->RunSteps(1).status());
  int64_t rows_of_all = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const Tensors taps = TapsOf(*world, rank);
    for (int m = 0; m < 2; ++m) {
      const auto all =
          As<int32_t>(taps.at(absl::StrCat("layers.1.counts_all@", m)));
      ASSERT_EQ(all.size(), 2 * 4);
      // Two of the four experts live on each rank.
      int64_t rows = 0;
      for (int source = 0; source < 2; ++source) {
        for (int e = 0; e < 2; ++e) rows += all[source * 4 + rank * 2 + e];
      }
      EXPECT_THAT(taps.at(absl::StrCat("layers.1.rows@", m)).shape,
                  ElementsAre(rows, 16));
      EXPECT_THAT(taps.at(absl::StrCat("layers.1.rows.grad@", m)).shape,
                  ElementsAre(rows, 16));
      rows_of_all += rows;
    }
  }
  EXPECT_EQ(rows_of_all, 2 * 2 * 6 * 2);  // ranks, microbatches, tokens, top-2
}

TEST(TapTest, CountedValuesHaveTheRowsThatWereThere) {
  ExpectTheRowsThatWereThere(v1::DISPATCHER_ALLTOALL);
}

TEST(TapTest, RowsThatOnlyTheDeviceCountsAreThoseThatWereThere) {
  ExpectTheRowsThatWereThere(v1::DISPATCHER_ALLGATHER);
}

// The losses, norms and weights of three steps, the bits of which taps leave
// alone.
struct Outcome {
  std::vector<double> numbers;
  std::map<std::string, std::vector<float>> parameters;
};

absl::StatusOr<Outcome> Train(LocalWorldOptions options) {
  ASSIGN_OR_RETURN(auto world, LocalWorld::Create(std::move(options)));
  ASSIGN_OR_RETURN(auto results, world->RunSteps(3));
  Outcome outcome;
  for (const StepResult& step : results[0]) {
    outcome.numbers.push_back(step.metrics.loss());
    outcome.numbers.push_back(step.metrics.grad_norm());
  }
  EXPECT_FALSE(results[0][0].is_tapped);
  ASSIGN_OR_RETURN(outcome.parameters, world->Parameters());
  return outcome;
}

TEST(TapTest, TapsOfEverythingChangeNoBit) {
  for (const bool combined : {false, true}) {
    for (const auto strategy : {v1::SHARDING_STRATEGY_NO_SHARD,
                                v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS}) {
      TinyJob tiny = TwoRanks();
      tiny.combined = combined;
      tiny.delay_wgrad = combined;
      tiny.strategy = strategy;
      LocalWorldOptions plain;
      plain.job = MakeJob(tiny);
      ASSERT_OK_AND_ASSIGN(const Outcome expected, Train(std::move(plain)));
      ASSERT_OK_AND_ASSIGN(const Outcome tapped,
                           Train(Tapping(tiny, 2, {"*"})));
      EXPECT_EQ(tapped.numbers, expected.numbers);
      EXPECT_EQ(tapped.parameters, expected.parameters);
    }
  }
}

// Both orders compute the same values; released memory is poisoned, so a copy
// taken too late would show.
TEST(TapTest, EveryValueIsThatOfTheOtherOrder) {
  TinyJob tiny = TwoRanks();
  tiny.microbatches = 3;
  std::vector<Tensors> by_order;
  for (const bool combined : {false, true}) {
    tiny.combined = combined;
    tiny.delay_wgrad = combined;
    ASSERT_OK_AND_ASSIGN(auto world,
                         LocalWorld::Create(Tapping(tiny, 1, {"*"})));
    ASSERT_OK(world->RunSteps(1).status());
    by_order.push_back(TapsOf(*world, 1));
  }
  ASSERT_EQ(by_order[0].size(), by_order[1].size());
  EXPECT_GT(by_order[0].size(), 300);
  for (const auto& [name, tensor] : by_order[0]) {
    const Tensor& other = by_order[1].at(name);
    EXPECT_EQ(tensor.shape, other.shape) << name;
    EXPECT_TRUE(tensor.bytes == other.bytes) << name;
  }
}

TEST(TapTest, ThereIsNothingToWriteBeforeTheStep) {
  ASSERT_OK_AND_ASSIGN(
      auto world, LocalWorld::Create(Tapping(TinyJob(), 2, {"head.logits"})));
  ASSERT_OK(world->RunSteps(1).status());
  EXPECT_THAT(world->engine(0).WriteTaps(::testing::TempDir()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("before the step of output.tap_step")));
}

TEST(TapTest, TheTraceOfTheTapStepShowsTaps) {
  ASSERT_OK_AND_ASSIGN(
      auto world, LocalWorld::Create(Tapping(TinyJob(), 1, {"head.logits"})));
  ASSERT_OK_AND_ASSIGN(const auto results, world->RunSteps(1));
  EXPECT_TRUE(results[0][0].is_tapped);
  EXPECT_EQ(results[0][0].spans.size(), world->plan().tapped->ops.size());
  EXPECT_OK(world->engine(0).WriteTrace(
      results[0][0], absl::StrCat(::testing::TempDir(), "/trace.json")));
}

}  // namespace
}  // namespace weft::exec
