// A job that replays what the routers of another chose.
#include "worker/exec/routing_replay.h"

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "checkpoint/format/safetensors_writer.h"
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
using testing::TinyJob;

constexpr int kSteps = 3;

TinyJob TwoRanks() {
  TinyJob tiny;
  tiny.world = 2;
  tiny.ep = 2;
  tiny.microbatches = 2;
  tiny.steps = kSteps;
  tiny.router_losses = true;
  return tiny;
}

std::string EmptyFolder(const std::string& name) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/", name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  return folder;
}

LocalWorldOptions Replaying(const TinyJob& tiny, const std::string& folder) {
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  options.job.set_replay_routing(folder);
  return options;
}

struct Outcome {
  std::vector<double> numbers;  // losses and norms of every step
  std::map<std::string, std::vector<float>> parameters;
};

// Runs all steps; what routers choose is written to `record` unless it is
// empty.
absl::StatusOr<Outcome> Train(LocalWorldOptions options,
                              const std::string& record = "") {
  options.job.mutable_output()->set_routing(!record.empty());
  ASSIGN_OR_RETURN(auto world, LocalWorld::Create(std::move(options)));
  Outcome outcome;
  RETURN_IF_ERROR(world->ForEachRank([&](int rank, Engine& engine) {
    StepResult result;
    for (int step = 1; step <= kSteps; ++step) {
      RETURN_IF_ERROR(engine.RunStep(step, 0, &result));
      if (!record.empty()) RETURN_IF_ERROR(engine.WriteRouting(record));
      if (rank > 0) continue;
      outcome.numbers.push_back(result.metrics.loss());
      outcome.numbers.push_back(result.metrics.grad_norm());
    }
    return engine.FinishRouting();
  }));
  ASSIGN_OR_RETURN(outcome.parameters, world->Parameters());
  return outcome;
}

// Routing of the job made up: the j-th choice of token t is expert choose(t,
// j).
void WriteRouting(const TinyJob& tiny, const std::string& folder,
                  const std::function<int32_t(int64_t, int64_t)>& choose) {
  const RoutingLayout layout =
      RoutingLayoutOf(schedule::Declare(MakeJob(tiny)));
  std::vector<int32_t> elements(layout.elements);
  for (const RoutingTensor& tensor : layout.tensors) {
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      elements[tensor.begin + i] = choose(i / tensor.top_k, i % tensor.top_k);
    }
  }
  for (int rank = 0; rank < tiny.world; ++rank) {
    for (int64_t step = 1; step <= kSteps; ++step) {
      checkpoint::SafetensorsWriter writer;
      for (const auto& [key, value] :
           RoutingMetadata(layout, tiny.world, rank, step)) {
        writer.SetMetadata(key, absl::StrCat(value));
      }
      for (const RoutingTensor& tensor : layout.tensors) {
        ASSERT_OK(writer.Add(tensor.name, DType::kI32,
                             {tensor.tokens, tensor.top_k},
                             elements.data() + tensor.begin));
      }
      ASSERT_OK(writer.Write(RoutingPath(folder, step, rank)));
    }
  }
}

int32_t InTurn(int64_t token, int64_t choice) {
  return static_cast<int32_t>((token + choice) % 4);
}

TEST(RoutingReplayTest, ReplayingItsOwnRoutingChangesNoBit) {
  for (const bool combined : {false, true}) {
    TinyJob tiny = TwoRanks();
    tiny.combined = combined;
    LocalWorldOptions plain;
    plain.job = MakeJob(tiny);
    const std::string folder = EmptyFolder("own");
    ASSERT_OK_AND_ASSIGN(const Outcome recorded,
                         Train(std::move(plain), folder));
    ASSERT_OK_AND_ASSIGN(const Outcome replayed,
                         Train(Replaying(tiny, folder)));
    EXPECT_EQ(replayed.numbers, recorded.numbers);
    EXPECT_EQ(replayed.parameters, recorded.parameters);
  }
}

TEST(RoutingReplayTest, MicrobatchesOfDifferentSizeAreReplayed) {
  TinyJob tiny = TwoRanks();
  tiny.uneven = {2, 1, 3};
  LocalWorldOptions plain;
  plain.job = MakeJob(tiny);
  const std::string folder = EmptyFolder("uneven");
  ASSERT_OK_AND_ASSIGN(const Outcome recorded, Train(std::move(plain), folder));
  ASSERT_OK_AND_ASSIGN(const Outcome replayed, Train(Replaying(tiny, folder)));
  EXPECT_EQ(replayed.numbers, recorded.numbers);
}

TEST(RoutingReplayTest, TokensGoWhereTheFilesSay) {
  const TinyJob tiny = TwoRanks();
  const std::string folder = EmptyFolder("in_turn");
  WriteRouting(tiny, folder, InTurn);
  LocalWorldOptions plain;
  plain.job = MakeJob(tiny);
  ASSERT_OK_AND_ASSIGN(const Outcome chosen, Train(std::move(plain)));
  const std::string again = EmptyFolder("again");
  ASSERT_OK_AND_ASSIGN(const Outcome told,
                       Train(Replaying(tiny, folder), again));
  EXPECT_NE(told.numbers[0], chosen.numbers[0]);
  for (int rank = 0; rank < tiny.world; ++rank) {
    RoutingReplayOptions options;
    options.folder = again;
    options.layout = RoutingLayoutOf(schedule::Declare(MakeJob(tiny)));
    options.steps = kSteps;
    options.rank = rank;
    options.world = tiny.world;
    ASSERT_OK_AND_ASSIGN(const auto recorded, RoutingReplay::Open(options));
    std::vector<int32_t> all(options.layout.elements);
    for (int step : {1, 3, 2}) {
      ASSERT_OK(recorded->Read(step, absl::MakeSpan(all)));
      for (size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(all[i], InTurn(i / 2 % 6, i % 2)) << i;
      }
    }
  }
}

TEST(RoutingReplayTest, Bf16ReplaysFp32) {
  TinyJob tiny = TwoRanks();
  LocalWorldOptions plain;
  plain.job = MakeJob(tiny);
  const std::string folder = EmptyFolder("fp32");
  ASSERT_OK(Train(std::move(plain), folder).status());
  tiny.compute = v1::NUMBER_FORMAT_BF16;
  const std::string again = EmptyFolder("bf16");
  ASSERT_OK(Train(Replaying(tiny, folder), again).status());
  for (int64_t step = 1; step <= kSteps; ++step) {
    RoutingReplayOptions options;
    options.layout = RoutingLayoutOf(schedule::Declare(MakeJob(tiny)));
    options.steps = kSteps;
    options.world = tiny.world;
    std::vector<int32_t> both[2];
    for (int i = 0; i < 2; ++i) {
      options.folder = i == 0 ? folder : again;
      ASSERT_OK_AND_ASSIGN(const auto replay, RoutingReplay::Open(options));
      both[i].resize(options.layout.elements);
      ASSERT_OK(replay->Read(step, absl::MakeSpan(both[i])));
    }
    EXPECT_EQ(both[0], both[1]);
  }
}

TEST(RoutingReplayTest, ValidationIsNotReplayed) {
  TinyJob tiny = TwoRanks();
  tiny.eval_batches = 2;
  const std::string folder = EmptyFolder("validation");
  WriteRouting(tiny, folder, InTurn);
  std::vector<double> losses;
  for (const bool replays : {false, true}) {
    ASSERT_OK_AND_ASSIGN(
        auto world, LocalWorld::Create(Replaying(tiny, replays ? folder : "")));
    ASSERT_OK(world->ForEachRank([&](int rank, Engine& engine) -> absl::Status {
      ASSIGN_OR_RETURN(const v1::EvalMetrics metrics, engine.RunEval(2));
      if (rank == 0) losses.push_back(metrics.loss());
      return absl::OkStatus();
    }));
  }
  EXPECT_EQ(losses[0], losses[1]);
}

absl::Status ErrorOf(const TinyJob& tiny, const std::string& folder) {
  return LocalWorld::Create(Replaying(tiny, folder)).status();
}

TEST(RoutingReplayTest, AMissingStepIsRefusedBeforeTheFirst) {
  const std::string folder = EmptyFolder("missing");
  WriteRouting(TwoRanks(), folder, InTurn);
  std::filesystem::remove(RoutingPath(folder, 3, 1));
  EXPECT_THAT(ErrorOf(TwoRanks(), folder),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("replay_routing: "),
                             HasSubstr("missing/step-3.rank-1.safetensors"))));
}

TEST(RoutingReplayTest, RoutingOfAnotherJobIsRefused) {
  const std::string folder = EmptyFolder("other");
  WriteRouting(TwoRanks(), folder, InTurn);
  TinyJob tiny = TwoRanks();
  tiny.sequences = 2;
  EXPECT_THAT(
      ErrorOf(tiny, folder).message(),
      AllOf(HasSubstr("step-1.rank-0.safetensors: layers.1.topk_index@0 is I32 "
                      "[6,2], this job needs I32 [12,2]")));
  tiny = TwoRanks();
  tiny.layers = 4;
  EXPECT_THAT(ErrorOf(tiny, folder).message(),
              HasSubstr("layers.3.topk_index@0 is missing, this job needs"));
  tiny.layers = 2;
  EXPECT_THAT(ErrorOf(tiny, folder).message(),
              AllOf(HasSubstr("layers.2.topk_index@"),
                    HasSubstr("this job has no such layer or microbatch")));
  tiny = TwoRanks();
  tiny.world = 1;
  tiny.ep = 1;
  EXPECT_THAT(ErrorOf(tiny, folder).message(),
              HasSubstr("recorded with world 2, this job needs world 1"));
  tiny = TwoRanks();
  tiny.experts = 8;
  EXPECT_THAT(ErrorOf(tiny, folder).message(),
              HasSubstr("recorded with experts 4, this job needs experts 8"));
  // As many tokens, of other sequences.
  tiny = TwoRanks();
  tiny.sequence_length /= 2;
  tiny.sequences *= 2;
  EXPECT_THAT(ErrorOf(tiny, folder).message(),
              HasSubstr("recorded with sequence_length 6, this job needs "
                        "sequence_length 3"));
}

TEST(RoutingReplayTest, ExpertsThatAreNoneFailTheirStep) {
  const TinyJob tiny = TwoRanks();
  const std::string folder = EmptyFolder("none");
  WriteRouting(tiny, folder, [](int64_t token, int64_t choice) {
    return token == 5 && choice == 1 ? 4 : InTurn(token, choice);
  });
  EXPECT_THAT(Train(Replaying(tiny, folder)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("step 1"),
                             HasSubstr("layers.1.topk_index@0: token 5 goes to "
                                       "expert 4, this job has experts 0 to "
                                       "3"))));
  WriteRouting(tiny, folder, [](int64_t, int64_t) { return 2; });
  EXPECT_THAT(Train(Replaying(tiny, folder)).status().message(),
              HasSubstr("token 0 goes to expert 2 twice"));
}

}  // namespace
}  // namespace weft::exec
