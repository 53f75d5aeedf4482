// The account of a matrix: what is compared with what, and what makes it fail.
#include "client/parity_matrix.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "client/parity_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ParityRun MakeRun(std::vector<std::string> values, const std::string& sum_class,
                  const std::string& objective = "all") {
  ParityRun run;
  run.values = std::move(values);
  run.sum_class = sum_class;
  run.objective = objective;
  return run;
}

LeftBehind OfGradient(float second) {
  LeftBehind left;
  left.gradient = {1, second};
  return left;
}

class ParityMatrixTest : public ::testing::Test {
 protected:
  void Execute(const ParityRun& run, const LeftBehind& left = {}) {
    EXPECT_OK(matrix_.AddExecuted(
        run, Leave(absl::StrCat("m", matrix_.generated()), left)));
  }
  std::vector<std::string> Results() const {
    std::vector<std::string> results;
    for (const ParityRow& row : matrix_.rows()) results.push_back(row.result);
    return results;
  }

  ParityMatrix matrix_;
};

TEST_F(ParityMatrixTest, EachRunSaysWithWhichItIsCompared) {
  Execute(MakeRun({"strategy=no_shard"}, "once"));
  Execute(MakeRun({"strategy=optim"}, "once"));
  Execute(MakeRun({"strategy=optim_grads"}, "each"), OfGradient(2.00001f));
  Execute(MakeRun({"strategy=optim_grads_params"}, "each"),
          OfGradient(2.00001f));
  EXPECT_THAT(Results(),
              ElementsAre("reference", "identical to run 1",
                          "within bounds of run 1", "identical to run 3"));
  ASSERT_EQ(matrix_.classes().size(), 2);
  EXPECT_EQ(matrix_.classes()[1].first_run, 3);
  EXPECT_EQ(matrix_.classes()[1].executed, 2);
  EXPECT_EQ(matrix_.classes()[1].identical, 1);
  EXPECT_TRUE(matrix_.holds());
  EXPECT_EQ(matrix_.Summary(),
            "4 combinations generated: 0 refused, 4 executed, 0 failed; of 2 "
            "classes, 2 identical, 1 within bounds, 0 different, 1 reference");
}

TEST_F(ParityMatrixTest, InsideAClassWithinBoundsIsDifferent) {
  Execute(MakeRun({"schedule=sequential"}, "once"));
  Execute(MakeRun({"schedule=combined_1f1b"}, "once"), OfGradient(2.00001f));
  EXPECT_EQ(matrix_.rows()[1].result, "DIFFERENT from run 1");
  EXPECT_THAT(matrix_.rows()[1].detail,
              HasSubstr("must be identical, but gradient of w: element 1"));
  EXPECT_FALSE(matrix_.holds());
}

TEST_F(ParityMatrixTest, BetweenClassesTheBrokenBoundIsNamed) {
  Execute(MakeRun({"world=1"}, "one"));
  Execute(MakeRun({"world=2"}, "two"), OfGradient(4));
  EXPECT_EQ(matrix_.rows()[1].result, "DIFFERENT from run 1");
  EXPECT_THAT(matrix_.rows()[1].detail, HasSubstr("bound 3.0e-05"));
  EXPECT_FALSE(matrix_.holds());
}

// With losses of routers, another microbatch has another loss to minimise.
TEST_F(ParityMatrixTest, AnotherObjectiveIsNotCompared) {
  LeftBehind left = OfGradient(4);
  left.objective = 3;
  Execute(MakeRun({"microbatch=1"}, "one", "microbatches of 1"));
  Execute(MakeRun({"microbatch=2"}, "two", "microbatches of 2"), left);
  Execute(MakeRun({"microbatch=4"}, "three", "microbatches of 2"), left);
  EXPECT_THAT(Results(),
              ElementsAre("reference", "reference", "identical to run 2"));
  EXPECT_THAT(matrix_.rows()[1].detail,
              HasSubstr("not comparable with those before: minimises "
                        "microbatches of 2"));
  EXPECT_TRUE(matrix_.holds());
}

TEST_F(ParityMatrixTest, RefusalsOfOneReasonAreCountedTogether) {
  Execute(MakeRun({"world=1"}, "one"));
  Execute(MakeRun({"world=2"}, "two"));
  matrix_.AddRefused(MakeRun({"world=4"}, "four"), "4 does not divide 6");
  matrix_.AddRefused(MakeRun({"world=4"}, "four"), "4 does not divide 6");
  matrix_.AddRefused(MakeRun({"world=8"}, "eight"), "8 does not divide 6");
  ASSERT_EQ(matrix_.refusals().size(), 2);
  EXPECT_EQ(matrix_.refusals()[0].runs, 2);
  EXPECT_EQ(matrix_.refusals()[1].reason, "8 does not divide 6");
  EXPECT_EQ(matrix_.rows()[4].detail, "reason 2");
  EXPECT_EQ(matrix_.classes()[2].refused, 2);
  EXPECT_EQ(matrix_.generated(), 5);
  EXPECT_EQ(matrix_.refused(), 3);
  EXPECT_TRUE(matrix_.holds());
}

TEST_F(ParityMatrixTest, AStrategyWithoutARunIsAnEmptyCell) {
  Execute(MakeRun({"strategy=no_shard"}, "once"));
  matrix_.AddRefused(MakeRun({"strategy=optim"}, "once"), "slots");
  EXPECT_THAT(matrix_.EmptyCells(),
              ElementsAre("nothing ran with strategy=optim"));
  EXPECT_FALSE(matrix_.holds());
}

TEST_F(ParityMatrixTest, AWorldAloneIsAnEmptyCell) {
  Execute(MakeRun({"world=1"}, "one"));
  EXPECT_THAT(matrix_.EmptyCells(),
              ElementsAre("of world, 1 value ran: nothing to compare"));
  EXPECT_FALSE(matrix_.holds());
  Execute(MakeRun({"world=2"}, "two"));
  EXPECT_THAT(matrix_.EmptyCells(), IsEmpty());
  EXPECT_TRUE(matrix_.holds());
}

TEST_F(ParityMatrixTest, AFailedRunFailsTheMatrix) {
  Execute(MakeRun({"delay_wgrad=false"}, "once"));
  Execute(MakeRun({"delay_wgrad=true"}, "once"));
  EXPECT_TRUE(matrix_.holds());
  matrix_.AddFailed(MakeRun({"delay_wgrad=true"}, "once"), "a rank is gone");
  EXPECT_EQ(matrix_.rows()[2].detail, "a rank is gone");
  EXPECT_EQ(matrix_.failed(), 1);
  EXPECT_FALSE(matrix_.holds());
}

}  // namespace
}  // namespace weft::client
