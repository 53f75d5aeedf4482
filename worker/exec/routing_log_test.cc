#include "worker/exec/routing_log.h"

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "checkpoint/format/safetensors_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/exec/testing/local_world.h"

namespace weft::exec {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::LocalWorld;
using testing::LocalWorldOptions;
using testing::MakeJob;
using testing::TinyJob;

constexpr int kSteps = 3;
constexpr int kRanks = 2;

LocalWorldOptions Recording(bool routing) {
  TinyJob tiny;
  tiny.world = kRanks;
  tiny.ep = kRanks;
  tiny.microbatches = 2;
  tiny.steps = kSteps;
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  options.job.mutable_output()->set_routing(routing);
  return options;
}

std::string EmptyFolder(const std::string& name) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/", name);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  return folder;
}

// Runs all steps, writing the routing of each; losses and norms of rank 0.
absl::StatusOr<std::vector<double>> RunAndRecord(LocalWorld& world,
                                                 const std::string& folder) {
  std::vector<double> numbers;
  RETURN_IF_ERROR(world.ForEachRank([&](int rank, Engine& engine) {
    StepResult result;
    for (int step = 1; step <= kSteps; ++step) {
      RETURN_IF_ERROR(engine.RunStep(step, 0, &result));
      if (!folder.empty()) RETURN_IF_ERROR(engine.WriteRouting(folder));
      if (rank > 0) continue;
      numbers.push_back(result.metrics.loss());
      numbers.push_back(result.metrics.grad_norm());
    }
    return engine.FinishRouting();
  }));
  return numbers;
}

// The tensors of a file.
std::map<std::string, std::vector<int32_t>> TensorsOf(const std::string& path) {
  auto file = checkpoint::SafetensorsFile::Open(path);
  EXPECT_OK(file.status());
  std::map<std::string, std::vector<int32_t>> tensors;
  for (const checkpoint::SafetensorsView& view : file->tensors()) {
    EXPECT_THAT(view.shape, ElementsAre(6, 2));
    std::vector<int32_t>& all = tensors[view.name];
    all.resize(view.elements());
    std::memcpy(all.data(), view.bytes.data(), view.bytes.size());
  }
  return tensors;
}

TEST(RoutingLogTest, EveryStepAndRankHasWhatItsRoutersChose) {
  LocalWorldOptions options = Recording(true);
  // The same values, as taps.
  options.job.mutable_output()->set_tap_step(2);
  options.job.mutable_output()->add_taps("*.topk_index");
  options.job.mutable_output()->add_taps("head.logits");
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
  const std::string folder = EmptyFolder("routing_log");
  ASSERT_OK(RunAndRecord(*world, folder).status());
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_OK(world->engine(rank).WriteTaps(folder));
    auto taps = checkpoint::SafetensorsFile::Open(
        absl::StrCat(folder, "/rank-0000", rank, ".safetensors"));
    ASSERT_OK(taps.status());
    for (int step = 1; step <= kSteps; ++step) {
      const auto tensors = TensorsOf(RoutingPath(folder, step, rank));
      ASSERT_EQ(tensors.size(), 2 * 2);
      for (const auto& [name, all] : tensors) {
        EXPECT_THAT(all,
                    Each(::testing::AllOf(::testing::Ge(0), ::testing::Lt(4))));
        if (step != 2) continue;
        EXPECT_EQ(absl::string_view(reinterpret_cast<const char*>(all.data()),
                                    all.size() * sizeof(int32_t)),
                  taps->Find(name)->bytes)
            << name;
      }
    }
  }
}

TEST(RoutingLogTest, OtherTapsAreAsWithoutIt) {
  for (const bool routing : {false, true}) {
    LocalWorldOptions options = Recording(routing);
    options.job.mutable_output()->set_tap_step(1);
    options.job.mutable_output()->add_taps("head.logits");
    ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
    ASSERT_OK(world->RunSteps(1).status());
    const std::string folder = EmptyFolder("other_taps");
    ASSERT_OK(world->engine(0).WriteTaps(folder));
    auto file = checkpoint::SafetensorsFile::Open(
        absl::StrCat(folder, "/rank-00000.safetensors"));
    ASSERT_OK(file.status());
    EXPECT_THAT(file->names(), ElementsAre("head.logits@0", "head.logits@1"));
  }
}

TEST(RoutingLogTest, RecordingChangesNoBit) {
  std::vector<std::vector<double>> numbers;
  for (const bool routing : {false, true}) {
    ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(Recording(routing)));
    ASSERT_OK_AND_ASSIGN(
        numbers.emplace_back(),
        RunAndRecord(*world, routing ? EmptyFolder("no_bit") : ""));
  }
  EXPECT_EQ(numbers[0], numbers[1]);
}

TEST(RoutingLogTest, AFileThatCannotBeWrittenFailsTheNextStepOrTheEnd) {
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(Recording(true)));
  ASSERT_OK(world->RunSteps(1).status());
  Engine& engine = world->engine(0);
  ASSERT_OK(engine.WriteRouting("/proc/none"));
  EXPECT_THAT(engine.FinishRouting().message(), HasSubstr("/proc/none"));
  EXPECT_THAT(engine.WriteRouting("/tmp").message(), HasSubstr("/proc/none"));
}

TEST(RoutingLogTest, ThereIsNothingToWriteUnlessTheJobAsks) {
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(Recording(false)));
  ASSERT_OK(world->RunSteps(1).status());
  EXPECT_THAT(world->engine(0).WriteRouting(::testing::TempDir()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("output.routing")));
}

}  // namespace
}  // namespace weft::exec
