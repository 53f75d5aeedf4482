// Which combinations there are, which must agree to the bit, and what is found
// when they do not.
#include "client/parity.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "checkpoint/format/safetensors_writer.h"
#include "gmock/gmock.h"
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
  for (const ParityRun& run : runs) labels.push_back(run.label);
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

TEST(ParityRunsTest, MicrobatchesDivideTheShareOfARank) {
  EXPECT_THAT(Labels(Runs({"world", "microbatch"}, 2)),
              ElementsAre("world=1 microbatch=1", "world=1 microbatch=2",
                          "world=1 microbatch=4", "world=2 microbatch=1",
                          "world=2 microbatch=2"));
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

class CompareRunsTest : public ::testing::Test {
 protected:
  // Leaves what a job of one parameter leaves, and returns its folder.
  std::string Leave(const std::string& name, double loss,
                    const std::vector<float>& gradient,
                    const std::vector<float>& parameter, double objective = 2,
                    double router_loss = 1) {
    const std::string folder =
        absl::StrCat(::testing::TempDir(), "/parity_", name);
    std::filesystem::remove_all(folder);
    for (const auto& [kind, values] :
         {std::pair("gradients", gradient), {"parameters", parameter}}) {
      std::filesystem::create_directories(absl::StrCat(folder, "/", kind));
      checkpoint::SafetensorsWriter writer;
      EXPECT_OK(writer.Add("w@0", DType::kF32,
                           {static_cast<int64_t>(values.size())},
                           values.data()));
      EXPECT_OK(writer.Write(
          absl::StrCat(folder, "/", kind, "/rank-00000.safetensors")));
    }
    std::ofstream(folder + "/steps.rank-0.jsonl") << absl::StrCat(
        "{\"kind\":\"step\",\"loss\":", loss,
        ",\"grad_norm\":1,\"objective\":", objective,
        ",\"router_losses\":[{\"layer\":3,\"name\":\"aux\",\"value\":",
        router_loss, "}]}\n");
    return folder;
  }

  const std::string a_ = Leave("a", 2, {1, 2}, {3, 4});
};

TEST_F(CompareRunsTest, EqualBitsAreIdentical) {
  ASSERT_OK_AND_ASSIGN(const ParityComparison same,
                       CompareRuns(a_, Leave("b", 2, {1, 2}, {3, 4})));
  EXPECT_EQ(same.verdict, ParityVerdict::kIdentical);
  EXPECT_EQ(same.detail, "");
}

TEST_F(CompareRunsTest, ASmallDifferenceOfTheFirstStepIsWithinBounds) {
  ASSERT_OK_AND_ASSIGN(
      const ParityComparison near,
      CompareRuns(a_, Leave("b", 2.000001, {1.00001f, 2}, {3, 4.1f})));
  EXPECT_EQ(near.verdict, ParityVerdict::kWithinBounds);
  EXPECT_THAT(near.detail, HasSubstr("(w)"));
}

TEST_F(CompareRunsTest, ALargeOneNamesWhereItBegins) {
  ASSERT_OK_AND_ASSIGN(const ParityComparison loss,
                       CompareRuns(a_, Leave("b", 2.1, {1, 2}, {3, 4})));
  EXPECT_EQ(loss.verdict, ParityVerdict::kDifferent);
  EXPECT_THAT(loss.detail, HasSubstr("loss of step 1 is 2 and 2.1"));
  ASSERT_OK_AND_ASSIGN(const ParityComparison gradient,
                       CompareRuns(a_, Leave("c", 2, {1, 2.5f}, {3, 4})));
  EXPECT_EQ(gradient.verdict, ParityVerdict::kDifferent);
  EXPECT_THAT(gradient.detail,
              HasSubstr("gradient of w: element 1 is 2 and 2.5"));
}

TEST_F(CompareRunsTest, AnotherRouterLossIsNamed) {
  ASSERT_OK_AND_ASSIGN(const ParityComparison router,
                       CompareRuns(a_, Leave("c", 2, {9, 2}, {3, 4}, 2, 1.5)));
  EXPECT_THAT(router.detail,
              HasSubstr("aux of layers.3 of step 1 is 1 and 1.5"));
}

TEST_F(CompareRunsTest, AnotherObjectiveIsNotIdentical) {
  ASSERT_OK_AND_ASSIGN(const ParityComparison objective,
                       CompareRuns(a_, Leave("b", 2, {1, 2}, {3, 4}, 2.5)));
  EXPECT_NE(objective.verdict, ParityVerdict::kIdentical);
}

TEST_F(CompareRunsTest, OtherParametersAfterEqualGradientsAreNotIdentical) {
  ASSERT_OK_AND_ASSIGN(const ParityComparison parameters,
                       CompareRuns(a_, Leave("b", 2, {1, 2}, {3, 5})));
  EXPECT_NE(parameters.verdict, ParityVerdict::kIdentical);
}

TEST_F(CompareRunsTest, WhatIsMissingIsNamed) {
  const std::string b = Leave("b", 2, {1, 2}, {3, 4});
  std::filesystem::remove_all(b + "/gradients");
  EXPECT_THAT(CompareRuns(a_, b).status().message(), HasSubstr("gradients"));
}

}  // namespace
}  // namespace weft::client
