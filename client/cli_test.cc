// Commands of weftctl; see usage_test.cc for its flags.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/format/safetensors_writer.h"
#include "client/cli_fixture.h"
#include "client/fake_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weft/v1/job_service.pb.h"

namespace weft::client {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(CliTest, NoCoordinatorExits69) {
  const Result result = Run("get jobs --coordinator=127.0.0.1:1");
  EXPECT_EQ(result.code, 69);
  EXPECT_THAT(result.err,
              AllOf(StartsWith("error: "), HasSubstr("(UNAVAILABLE)")));
}

TEST_F(CliTest, SubmitSendsTheJobAndPrintsItsId) {
  Serve();
  const Result result =
      Run("submit -f examples/moe_text.yaml --set steps=7 --set=seed=9 "
          "--request-id abc");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "job moe-1 queued\n");
  EXPECT_THAT(result.err, HasSubstr("warning: nothing is hidden\n"));
  ASSERT_EQ(coordinator_->submits().size(), 1);
  const v1::SubmitJobRequest request = coordinator_->submits()[0];
  EXPECT_EQ(request.request_id(), "abc");
  EXPECT_EQ(request.job().steps(), 7);
  EXPECT_EQ(request.job().seed(), 9);
  EXPECT_EQ(request.job().model().moe().num_experts(), 8);
  EXPECT_EQ(request.job().data().prefix(),
            (std::filesystem::current_path() / ".weft/data/bible").string());
  EXPECT_EQ(Run("submit -f examples/moe_text.yaml -o name").out, "moe-1\n");
}

TEST_F(CliTest, ARetriedSubmitKeepsItsRequestId) {
  FakeCoordinator::Script script;
  script.unavailable_submits = 2;
  Serve(script);
  EXPECT_EQ(Run("submit -f examples/moe_text.yaml").code, 0);
  const auto submits = coordinator_->submits();
  ASSERT_EQ(submits.size(), 3);
  EXPECT_THAT(submits[0].request_id(),
              MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-"
                           "[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
  EXPECT_EQ(submits[1].request_id(), submits[0].request_id());
  EXPECT_EQ(submits[2].request_id(), submits[0].request_id());
}

TEST_F(CliTest, ALateSubmitNamesItsRequestId) {
  FakeCoordinator::Script script;
  script.is_submit_late = true;
  Serve(script);
  const Result result = Run("submit -f examples/moe_text.yaml");
  EXPECT_EQ(result.code, 69);
  const auto submits = coordinator_->submits();
  ASSERT_EQ(submits.size(), 1);
  ASSERT_FALSE(submits[0].request_id().empty());
  EXPECT_EQ(
      result.err,
      absl::StrCat("error: too late (DEADLINE_EXCEEDED)\n"
                   "hint: the job may still be queued; submit it again with "
                   "--request-id=",
                   submits[0].request_id(), " and it is queued once only\n"));
}

TEST_F(CliTest, ARefusedJobShowsEachViolationWithItsLine) {
  Serve();
  const std::string job =
      Job("name: illegal\nmodel:\n  moe:\n    num_experts: 8\n    top_k: 9\n");
  for (const char* verb : {"submit", "validate"}) {
    const Result result = Run(absl::StrCat(verb, " -f ", job));
    EXPECT_EQ(result.code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(
        result.err,
        absl::StrCat("error: ", job,
                     ":5:5: model.moe.top_k=9; must be 1 to "
                     "num_experts=8\n"
                     "error: optimizer.learning_rate: must be above 0\n"
                     "error: refused for 2 violations (INVALID_ARGUMENT)\n"));
  }
  EXPECT_TRUE(coordinator_->submits().empty());
}

TEST_F(CliTest, AWrongFileIsRefusedBeforeAnyCall) {
  Serve();
  const std::string job = Job("stesp: 3\nseed: -1\n");
  const Result result = Run("submit -f " + job);
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.err,
            absl::StrCat("error: ", job,
                         ":1:1: stesp: unknown field; did you mean \"steps\"?\n"
                         "error: ",
                         job,
                         ":2:7: seed: -1 is not in [0, "
                         "18446744073709551615]\n"));
  EXPECT_EQ(Run("submit -f /nonexistent.yaml").code, 1);
  EXPECT_TRUE(coordinator_->submits().empty());
}

TEST_F(CliTest, ValidatePrintsThePlanInNumbers) {
  Serve();
  const Result result = Run("validate -f examples/moe_text.yaml");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out,
              AllOf(StartsWith("the job is valid, but for its files"),
                    HasSubstr("ops: "), HasSubstr(" 42\n")));
  EXPECT_THAT(result.err, AllOf(StartsWith("warning: nothing is hidden\n"),
                                HasSubstr("warning: data.prefix=")));
}

TEST_F(CliTest, ExplainSaysWhatAFieldMeansAndWhichRulesItHas) {
  EXPECT_THAT(Run("explain steps").out,
              StartsWith("steps: integer\n\nRequired. Optimizer steps"));
  EXPECT_EQ(Run("explain stepz").code, 1);
  EXPECT_THAT(Run("explain steps -o json").out,
              StartsWith("{\n  \"field\": \"steps\",\n  \"text\": \""));
  Serve();
  EXPECT_EQ(Run("explain parallel --rules").out,
            "FIELD        MUST BE             READS\n"
            "parallel.ep  a divisor of world  parallel.world\n"
            "\n"
            "FIELD        LEGAL, THOUGH OFTEN REFUSED  BECAUSE\n"
            "parallel.ep  combined_1f1b alone          it is right\n");
  EXPECT_EQ(Run("explain steps --rules").out, "FIELD  MUST BE  READS\nsteps\n");
  EXPECT_THAT(Run("explain --rules -o json").out,
              HasSubstr("\"field\": \"steps\""));
  EXPECT_EQ(Run("explain seed --rules").err, "no rule is about seed\n");
  const Result unknown = Run("explain stepz --rules");
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean \"steps\"?"));
}

TEST_F(CliTest, GetPrintsTablesAndScripts) {
  Serve();
  EXPECT_THAT(Run("get jobs").out,
              StartsWith("ID     NAME  STATE   STEP  LOSS  AGE\n"
                         "moe-0  moe   queued  0/3   -     "));
  EXPECT_EQ(Run("get jobs -o name").out, "moe-0\nmoe-1\n");
  EXPECT_EQ(Run("-o name get workers").out, "w0\nw1\n");
  EXPECT_THAT(Run("get job moe-1 -o json").out,
              AllOf(HasSubstr("\"id\": \"moe-1\""),
                    HasSubstr("\"state\": \"JOB_STATE_RUNNING\"")));
  EXPECT_THAT(Run("get job moe-1 -o yaml").out,
              HasSubstr("id: moe-1\nspec:\n  name: moe\n  steps: 3\n"));
  EXPECT_THAT(Run("describe job moe-1").out,
              AllOf(HasSubstr("state:"),
                    ContainsRegex("  main weights: +1024 B .1.0 KiB.\n")));
  EXPECT_THAT(Run("describe worker w1").out,
              StartsWith("id:             w1\n"));
  EXPECT_THAT(Run("describe worker w1 -o yaml").out,
              StartsWith("id: w1\nstate: idle\n"));
  EXPECT_EQ(Run("describe worker w9").err, "error: no worker w9 (NOT_FOUND)\n");
  const Result ghost = Run("get job ghost");
  EXPECT_EQ(ghost.code, 1);
  EXPECT_EQ(ghost.err, "error: no job ghost (NOT_FOUND)\n");
}

TEST_F(CliTest, GetJobsPagesToItsLimit) {
  FakeCoordinator::Script script;
  script.jobs = 450;
  Serve(script);
  const auto lines = [](const Result& result) {
    return std::count(result.out.begin(), result.out.end(), '\n');
  };
  EXPECT_EQ(lines(Run("get jobs -o name --limit 0")), 450);
  EXPECT_EQ(lines(Run("get jobs -o name --limit 201")), 201);
  const Result few = Run("get jobs -o name");
  EXPECT_EQ(lines(few), 50);
  EXPECT_THAT(few.err, HasSubstr("--limit=0"));
}

TEST_F(CliTest, WatchShowsProgressAndExitsByTheEnd) {
  Serve();
  const Result result = Run("watch moe-1 --every-steps 1");
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out,
            "job:        moe-1 succeeded\n"
            "steps:      3 of 3\n"
            "loss:       2.0000 nats a token at step 3\n"
            "artifacts:  /runs/moe-1\n");
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("step 1/3 ["), HasSubstr("step 2/3 ["),
                    HasSubstr("step 3/3 [########]  loss 2.000 nats"),
                    HasSubstr("2.0k tokens/s"), Not(HasSubstr("succeeded")),
                    Not(HasSubstr("\x1b"))));
}

TEST_F(CliTest, WatchAsJsonIsALineAMessage) {
  Serve();
  const Result result = Run("watch moe-1 -o json");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 5);
  EXPECT_THAT(result.out, StartsWith("{\"revision\":\"1\",\"snapshot\":"));
}

TEST_F(CliTest, WaitExitsByHowTheJobEnded) {
  FakeCoordinator::Script script;
  script.end_state = v1::JOB_STATE_FAILED;
  Serve(script);
  const Result failed = Run("wait moe-1");
  EXPECT_EQ(failed.code, 3);
  EXPECT_THAT(failed.out, StartsWith("job:        moe-1 failed\n"));
  EXPECT_EQ(failed.err, "error: rank 2 is lost\n");
  EXPECT_EQ(Run("submit --wait -f examples/moe_text.yaml").code, 3);
  script.end_state = v1::JOB_STATE_CANCELLED;
  Serve(script);
  EXPECT_EQ(Run("wait moe-1").code, 4);
}

TEST_F(CliTest, AFailureIsToldOnceWithAHintAtItsDataset) {
  FakeCoordinator::Script script;
  script.end_state = v1::JOB_STATE_FAILED;
  script.failure = "NOT_FOUND: opening /data/text.idx\x1b[2J";
  Serve(script);
  const Result failed = Run("watch moe-1");
  EXPECT_EQ(failed.code, 3);
  EXPECT_THAT(failed.err,
              EndsWith("\nerror: NOT_FOUND: opening /data/text.idx\\x1b[2J\n"
                       "hint: make the dataset with: weftctl data prepare "
                       "--input TEXT --output /data/text\n"));
  EXPECT_EQ(failed.err.find("opening"), failed.err.rfind("opening"));
}

TEST_F(CliTest, WaitTimesOutWithFive) {
  FakeCoordinator::Script script;
  script.silent_seconds = 60;
  Serve(script);
  const Result result = Run("wait moe-1 --timeout 300ms");
  EXPECT_EQ(result.code, 5);
  EXPECT_THAT(result.err, HasSubstr("it goes on"));
}

TEST_F(CliTest, AnInterruptSaysThatTheJobGoesOn) {
  FakeCoordinator::Script script;
  script.silent_seconds = 60;
  Serve(script);
  const Result result =
      Run("watch moe-1", "timeout --preserve-status -s INT 2");
  EXPECT_EQ(result.code, 130);
  EXPECT_THAT(result.err, HasSubstr("the job goes on"));
}

TEST_F(CliTest, CancelStopsAJob) {
  Serve();
  const Result result = Run("cancel moe-1 --yes --reason 'wrong data'");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "job moe-1 stopping\n");
  EXPECT_EQ(coordinator_->cancel().reason(), "wrong data");
}

TEST_F(CliTest, PlansComeFromAFileOrTheCoordinator) {
  Serve();
  EXPECT_EQ(Run("plan moe-1 --rank 2").out, "plan of rank 2\n");
  EXPECT_EQ(Run("plan moe-1 --timeline").out, "compute |#|\n");
  const Result offline =
      Run("plan -f examples/moe_text.yaml --rank 1", "env -u WEFT_COORDINATOR");
  EXPECT_EQ(offline.code, 0) << offline.err;
  EXPECT_THAT(offline.out, StartsWith("rank 1 of 4"));
  const Result wrong = Run("plan -f examples/moe_text.yaml --set steps=x");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_EQ(wrong.err, "error: --set: steps: \"x\" is not an integer\n");
}

TEST_F(CliTest, APlanIsSimulatedAndTraced) {
  const std::string trace = folder_ + "/step.json";
  const Result plan =
      Run("plan -f examples/moe_text.yaml --timeline --trace " + trace);
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.err, AllOf(HasSubstr("simulated step:"),
                              HasSubstr("peak device memory:")));
  EXPECT_THAT(ReadFile(trace), HasSubstr("\"kind\":\"simulated\""));
  const Result costs =
      Run("plan -f examples/moe_text.yaml --costs " + folder_ + "/none");
  EXPECT_EQ(costs.code, 1);
  EXPECT_THAT(costs.err, HasSubstr("/none"));
}

TEST_F(CliTest, AJobThatMeasuredNoStepIsSaidSo) {
  Serve();
  for (const std::string& command :
       {std::string("trace moe-1"),
        absl::StrCat("calibrate moe-1 --out ", folder_, "/costs")}) {
    const Result result = Run(command);
    EXPECT_EQ(result.code, 1) << command;
    EXPECT_THAT(result.err, HasSubstr("job moe-1 measured no step; run it with "
                                      "output.trace_step"));
  }
  EXPECT_EQ(Run("calibrate moe-1").code, 2);
  EXPECT_EQ(Run("simulate moe-1").code, 2);
}

TEST_F(CliTest, DataPrepareAndInfo) {
  std::ofstream(folder_ + "/text") << "aabba";
  const std::string prefix = folder_ + "/new/text";
  const Result prepared = Run(absl::StrCat("data prepare --input ", folder_,
                                           "/text --output ", prefix));
  EXPECT_EQ(prepared.code, 0) << prepared.err;
  EXPECT_THAT(prepared.out,
              AllOf(HasSubstr("tokens:                      5\n"),
                    HasSubstr("bigram_conditional_entropy:  0.693 nats a "
                              "token\n")));
  EXPECT_THAT(Run("data info -o yaml " + prefix).out,
              HasSubstr("token_type: u16\ntokens: 5\nsequences: 1\n"
                        "documents: 1\nmin_token: 97\nmax_token: 98\n"));
  for (const char* extension : {".bin", ".idx"}) {
    EXPECT_EQ(Run(absl::StrCat("data info ", prefix, extension)).out,
              Run("data info " + prefix).out);
  }
  EXPECT_EQ(Run("data info /nonexistent").code, 1);
  EXPECT_EQ(Run("data prepare --input /dev/null --output " + prefix).code, 1);
  EXPECT_THAT(Run(absl::StrCat("data prepare -o json --input ", folder_,
                               "/text --output ", prefix))
                  .out,
              HasSubstr("\"bigram_conditional_entropy\": 0.69314718"));
}

TEST_F(CliTest, ParamsDiffExitsByTheResult) {
  const auto write = [&](const std::string& name, float last) {
    const std::string folder = folder_ + "/" + name;
    std::filesystem::create_directories(folder);
    const std::vector<float> values = {1, 2, last};
    checkpoint::SafetensorsWriter writer;
    EXPECT_TRUE(writer.Add("w@0", DType::kF32, {3}, values.data()).ok());
    EXPECT_TRUE(writer.Write(folder + "/rank-00000.safetensors").ok());
    return folder;
  };
  const std::string a = write("a", 4);
  const std::string b = write("b", 5);
  const Result same = Run(absl::StrCat("params diff ", a, " ", a));
  EXPECT_EQ(same.code, 0);
  EXPECT_EQ(same.out, "identical:   true\nparameters:  1\nelements:    3\n");
  const Result other = Run(absl::StrCat("params diff ", a, " ", b));
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.out, HasSubstr("w: element 2 is 4 and 5\n"));
  EXPECT_EQ(Run(absl::StrCat("params diff --tolerance 0.2 ", a, " ", b)).code,
            0);
  const std::string more = folder_ + "/more/parameters";
  std::filesystem::create_directories(more);
  checkpoint::SafetensorsWriter writer;
  const std::vector<float> values = {1, 2, 4};
  EXPECT_TRUE(writer.Add("w@0", DType::kF32, {3}, values.data()).ok());
  EXPECT_TRUE(writer.Add("x@0", DType::kF32, {3}, values.data()).ok());
  EXPECT_TRUE(writer.Write(more + "/rank-00000.safetensors").ok());
  const Result missing = Run(absl::StrCat("params diff -o yaml --tolerance 2 ",
                                          a, " ", folder_, "/more"));
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.out, HasSubstr("only_in_b: 1\nfirst_difference: "
                                     "\"x: only in B\"\n"));
}

TEST_F(CliTest, GoldenNamesEachFolderThatItCannotRunAndWhy) {
  Serve();
  const std::string other = folder_ + "/other";
  std::filesystem::create_directories(other);
  std::ofstream(other + "/config.json")
      << R"({"model_class": "T5Model", "mtp_num_layers": 17})";
  const Result result = Run(
      absl::StrCat("golden ", other, " ", folder_, "/none --work ", folder_));
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(
      result.err,
      AllOf(HasSubstr(other + ": config.json: "),
            HasSubstr("; model_class=\"T5Model\": must be \"GPTModel\" or "),
            HasSubstr("; mtp_num_layers=17: must"),
            HasSubstr("/none: cannot open folder")));
  EXPECT_EQ(coordinator_->submits().size(), 0);
}

TEST_F(CliTest, VersionAndCompletion) {
  EXPECT_THAT(Run("version --client").out, StartsWith("client:"));
  Serve();
  EXPECT_THAT(Run("version -o json").out,
              HasSubstr("\"coordinator\": \"fake\""));
  const Result script = Run("completion bash");
  EXPECT_THAT(script.out, HasSubstr("complete -o filenames"));
  std::ofstream(folder_ + "/completion") << script.out;
  EXPECT_EQ(std::system(absl::StrCat("bash -c 'source ", folder_,
                                     "/completion; COMP_WORDS=(weftctl get w); "
                                     "COMP_CWORD=2; _weftctl; "
                                     "[[ \"${COMPREPLY[*]}\" == workers ]]'")
                            .c_str()),
            0);
}

}  // namespace
}  // namespace weft::client
