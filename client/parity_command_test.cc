// weftctl parity, against a coordinator that runs nothing: what it prints and
// how it exits.

#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli_fixture.h"
#include "client/fake_coordinator.h"
#include "client/parity_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weft::client {
namespace {

using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class ParityCommandTest : public CliTest {
 protected:
  Result Parity(const std::string& name, const std::string& flags) {
    return Run(absl::StrCat(
        "parity -f ",
        Job(absl::StrCat("name: ", name,
                         "\nparallel: {world: 2}\n"
                         "batch: {global_batch: 4, microbatch: 1}\n")),
        " ", flags));
  }
};

// All jobs leave the same.
TEST_F(ParityCommandTest, RunsAndClassesAreCounted) {
  FakeCoordinator::Script script;
  script.artifacts = Leave("command");
  Serve(script);
  const Result result = Parity("moe", "--vary strategy,delay_wgrad");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(ContainsRegex("\n1 +reference +strategy=no_shard "
                                  "delay_wgrad=false\n"),
                    ContainsRegex("\n4 +identical to run 1 +strategy=optim "
                                  "delay_wgrad=true\n"),
                    ContainsRegex("one reduction +1 +4 +0 +4 +3\n"),
                    ContainsRegex("a reduction each +5 +4 +0 +4 +3\n")));
  EXPECT_THAT(result.err,
              HasSubstr("8 combinations generated: 0 refused, 8 executed, "
                        "0 failed; of 2 classes, 7 identical, 0 within "
                        "bounds, 0 different, 1 reference\n"));
  EXPECT_EQ(coordinator_->submits().size(), 8);
}

TEST_F(ParityCommandTest, RefusalsAreGroupedAndEmptyCellsFail) {
  Serve();
  const Result result = Parity("illegal", "--vary schedule");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out,
              HasSubstr("reason 1, of 2 refused: the job is not legal\n"));
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("empty: nothing ran with schedule=sequential\n"),
                    HasSubstr("2 combinations generated: 2 refused, 0 "
                              "executed")));
}

TEST_F(ParityCommandTest, AFailedJobFailsIt) {
  FakeCoordinator::Script script;
  script.end_state = v1::JOB_STATE_FAILED;
  Serve(script);
  const Result result = Parity("moe", "--vary schedule");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, ContainsRegex("\n1 +FAILED +schedule=sequential +"
                                        "rank 2 is lost\n"));
}

TEST_F(ParityCommandTest, ForScriptsALineIsARunAndTheLastOneCounts) {
  FakeCoordinator::Script script;
  script.artifacts = Leave("lines");
  Serve(script);
  std::istringstream lines(Parity("moe", "--vary world -o json").out);
  std::vector<json> runs;
  for (std::string line; std::getline(lines, line);) {
    runs.push_back(json::parse(line));
  }
  ASSERT_EQ(runs.size(), 3);
  EXPECT_EQ(runs[0]["result"], "reference");
  EXPECT_EQ(runs[1]["combination"], "world=2");
  EXPECT_EQ(runs[1]["class"], "world=2 ep=1 microbatch=1 a reduction each");
  EXPECT_EQ(runs[2]["generated"], 2);
  EXPECT_EQ(runs[2]["executed"], 2);
  EXPECT_EQ(runs[2]["holds"], true);
}

}  // namespace
}  // namespace weft::client
