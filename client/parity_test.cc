// Which combinations there are, and which must agree to the bit.
#include "client/parity.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::TrainingJob Base() {
  v1::TrainingJob job;
  job.mutable_parallel()->set_world(1);
  job.mutable_batch()->set_global_batch(4);
  job.mutable_batch()->set_microbatch(1);
  return job;
}

std::vector<ParityRun> Runs(const std::vector<std::string>& names,
                            int64_t workers = 4) {
  const auto axes = ParseParityAxes(names);
  EXPECT_OK(axes);
  return ParityRuns(Base(), *axes, workers);
}

std::vector<std::string> Labels(const std::vector<ParityRun>& runs) {
  std::vector<std::string> labels;
  for (const ParityRun& run : runs) labels.push_back(run.label());
  return labels;
}

TEST(ParityAxesTest, AnUnknownOneIsNamedWithTheNearest) {
  EXPECT_THAT(ParseParityAxes({"schedule", "strateg"}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("\"strateg\" cannot be varied; did you mean "
                                 "\"strategy\"?")));
}

TEST(ParityRunsTest, WorldsArePowersOfTwoAndEpDividesThem) {
  EXPECT_THAT(Labels(Runs({"world", "ep"})),
              ElementsAre("world=1 ep=1", "world=2 ep=1", "world=2 ep=2",
                          "world=4 ep=1", "world=4 ep=2", "world=4 ep=4"));
  EXPECT_EQ(Runs({"world", "ep"}, 3).size(), 3);
}

TEST(ParityRunsTest, SizesBeyondTheirRangesAreRefused) {
  const auto refusal = [](auto set) {
    v1::TrainingJob job = Base();
    set(job);
    return CheckParitySizes(job);
  };
  EXPECT_OK(CheckParitySizes(Base()));
  EXPECT_THAT(
      refusal([](auto& job) { job.mutable_parallel()->set_world(2147483647); }),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "parallel.world=2147483647; must be 0 to 65536"));
  EXPECT_THAT(refusal([](auto& job) {
                job.mutable_batch()->set_global_batch(2147483647);
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "batch.global_batch=2147483647; must be 0 to 1048576"));
  EXPECT_THAT(
      refusal([](auto& job) { job.mutable_batch()->set_microbatch(-1); }),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "batch.microbatch=-1; must be 0 to 1048576"));
  EXPECT_THAT(refusal([](auto& job) {
                job.mutable_batch()->add_microbatches(1 << 30);
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "batch.microbatches=1073741824; must be 0 to 1048576"));
}

TEST(ParityRunsTest, MicrobatchesDivideTheShareOfARank) {
  EXPECT_THAT(Labels(Runs({"world", "microbatch"}, 2)),
              ElementsAre("world=1 microbatch=1", "world=1 microbatch=2",
                          "world=1 microbatch=4", "world=2 microbatch=1",
                          "world=2 microbatch=2"));
}

TEST(ParityRunsTest, DispatchersSumAlike) {
  const std::vector<ParityRun> runs = Runs({"dispatcher"});
  EXPECT_THAT(Labels(runs),
              ElementsAre("dispatcher=alltoall", "dispatcher=allgather",
                          "dispatcher=flex"));
  EXPECT_EQ(runs[1].job.parallel().dispatcher(), v1::DISPATCHER_ALLGATHER);
  EXPECT_EQ(runs[2].job.parallel().dispatcher(), v1::DISPATCHER_FLEX);
  for (const ParityRun& run : runs) {
    EXPECT_EQ(run.sum_class, runs[0].sum_class);
  }
}

TEST(ParityRunsTest, RecomputeIsNothingEachPartThatLayersHaveAndAll) {
  v1::TrainingJob base = Base();
  base.mutable_model()->set_num_layers(1);
  base.mutable_model()->mutable_attention()->set_num_heads(2);
  base.mutable_model()->mutable_moe()->set_num_experts(2);
  const std::vector<ParityRun> runs =
      ParityRuns(base, {ParityAxis::kRecompute}, 4);
  EXPECT_THAT(Labels(runs),
              ElementsAre("recompute=nothing", "recompute=norm",
                          "recompute=moe_activation",
                          "recompute=attention_core", "recompute=full"));
  EXPECT_FALSE(runs[0].job.schedule().has_recompute());
  EXPECT_THAT(runs[2].job.schedule().recompute().parts(),
              ElementsAre(v1::RECOMPUTE_PART_MOE_ACTIVATION));
  EXPECT_TRUE(runs[4].job.schedule().recompute().full());
  for (const ParityRun& run : runs) {
    EXPECT_EQ(run.sum_class, runs[0].sum_class);
  }
}

TEST(ParityRunsTest, EveryRunLeavesWhatIsCompared) {
  for (const ParityRun& run : Runs({"schedule", "delay_wgrad"})) {
    EXPECT_TRUE(run.job.output().final_parameters());
    EXPECT_EQ(run.job.output().gradients_step(), 1);
  }
}

// Strategies sum alike with one microbatch or one rank; else those that reduce
// once a step and those that reduce every microbatch are apart.
TEST(ParityRunsTest, RunsThatSumAlikeAreOfOneClass) {
  std::map<std::string, std::set<std::string>> classes;  // by place
  for (const ParityRun& run :
       Runs({"world", "microbatch", "strategy", "schedule", "delay_wgrad"})) {
    const auto& job = run.job;
    classes[absl::StrCat("world ", job.parallel().world(), " microbatch ",
                         job.batch().microbatch())]
        .insert(run.sum_class);
  }
  EXPECT_EQ(classes.size(), 6);
  EXPECT_EQ(classes["world 1 microbatch 1"].size(), 1);
  EXPECT_EQ(classes["world 2 microbatch 1"].size(), 2);
  EXPECT_EQ(classes["world 2 microbatch 2"].size(), 1);
  EXPECT_EQ(classes["world 4 microbatch 1"].size(), 1);
}

// What depends on which sequences share a microbatch of all ranks.
TEST(ParityRunsTest, RunsThatMinimiseSomethingElseAreOfAnotherObjective) {
  const std::vector<std::string> places = {
      "world=1 microbatch=1", "world=1 microbatch=2", "world=1 microbatch=4",
      "world=2 microbatch=1", "world=2 microbatch=2"};
  const auto objectives = [&](const std::string& more) {
    v1::TrainingJob base = Base();
    EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(more, &base));
    std::vector<std::string> found;
    const auto axes = ParseParityAxes({"world", "microbatch"});
    const std::vector<ParityRun> runs = ParityRuns(base, *axes, 2);
    EXPECT_EQ(Labels(runs), places);
    for (const ParityRun& run : runs) found.push_back(run.objective);
    return found;
  };
  const std::string all = "the mean over the batch";
  const std::string of_1 = "microbatches of 1 sequences in all";
  const std::string of_2 = "microbatches of 2 sequences in all";
  const std::string of_4 = "microbatches of 4 sequences in all";
  EXPECT_THAT(objectives(""), ElementsAre(all, all, all, all, all));
  for (const char* more :
       {"model { moe { router_loss { aux: 0.1 } } }",
        "model { moe { router_loss { sequence_aux: 0.1 } } }",
        "model { moe { router_loss { global_aux: 0.1 } } }",
        "model { moe { router_loss { z: 0.1 } } }",
        "data { loss_mask_prefix: '/mask' }"}) {
    EXPECT_THAT(objectives(more), ElementsAre(of_1, of_2, of_4, of_2, of_4))
        << more;
  }
  const auto on_ranks = [](int sequences, int ranks) {
    return absl::StrCat("microbatches of ", sequences, " sequences on each of ",
                        ranks, " ranks");
  };
  EXPECT_THAT(objectives("model { moe { capacity { factor: 1 } } }"),
              ElementsAre(on_ranks(1, 1), on_ranks(2, 1), on_ranks(4, 1),
                          on_ranks(1, 2), on_ranks(2, 2)));
  EXPECT_THAT(objectives("data { loss_mask_prefix: '/mask' } "
                         "loss { normalization: LOSS_NORMALIZATION_TOKEN }"),
              ElementsAre(all, all, all, all, all));
}

TEST(ParityRunsTest, AnUnevenStepComesFirstAndIsAnObjectiveOfItsOwn) {
  v1::TrainingJob base = Base();
  base.mutable_batch()->clear_microbatch();
  for (int sequences : {2, 1, 1}) {
    base.mutable_batch()->add_microbatches(sequences);
  }
  const auto axes = ParseParityAxes({"microbatch"});
  std::vector<ParityRun> runs = ParityRuns(base, *axes, 1);
  EXPECT_THAT(Labels(runs), ElementsAre("microbatch=2,1,1", "microbatch=1",
                                        "microbatch=2", "microbatch=4"));
  EXPECT_EQ(runs[0].objective, "microbatches of 2,1,1 sequences in all");
  EXPECT_EQ(runs[1].objective, "the mean over the batch");
  EXPECT_EQ(runs[1].job.batch().microbatches_size(), 0);
  // Means over tokens do not depend on how the step is cut.
  base.mutable_loss()->set_normalization(v1::LOSS_NORMALIZATION_TOKEN);
  runs = ParityRuns(base, *axes, 1);
  EXPECT_EQ(runs[0].objective, "the mean over the batch");
  EXPECT_NE(runs[0].sum_class, runs[1].sum_class);
}

TEST(ParityRunsTest, WhatCannotBeDividedIsThereToBeRefused) {
  v1::TrainingJob base = Base();
  base.mutable_batch()->set_global_batch(6);
  const auto axes = ParseParityAxes({"world", "microbatch"});
  EXPECT_THAT(Labels(ParityRuns(base, *axes, 4)),
              ElementsAre("world=1 microbatch=1", "world=1 microbatch=2",
                          "world=1 microbatch=3", "world=1 microbatch=6",
                          "world=2 microbatch=1", "world=2 microbatch=3",
                          "world=4 microbatch=1"));
}

}  // namespace
}  // namespace weft::client
