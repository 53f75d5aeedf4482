// What a session validates, logs and writes.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/service/job_session_fixture.h"

namespace weft::service {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::worker::v1::AttachRequest;
using ::weft::worker::v1::Finished;

constexpr int kOk = 0;

TEST_F(JobSessionTest, ValidatesWhenDueAndOnceAtTheEnd) {
  worker::v1::Prepare prepare = TinyPrepare();
  prepare.mutable_binding()->set_rank(0);
  prepare.mutable_job()->set_steps(4);
  prepare.mutable_job()->mutable_eval()->set_every_steps(2);
  prepare.mutable_job()->mutable_eval()->set_batches(3);
  Begin(prepare);
  Start();
  std::vector<std::string> seen;
  while (true) {
    const AttachRequest message = Take(outbox_);
    if (!message.has_step_report() && !message.has_eval_report()) break;
    if (message.has_step_report()) {
      seen.push_back("step " +
                     std::to_string(message.step_report().metrics().step()));
    } else {
      EXPECT_EQ(message.eval_report().metrics().tokens(), 3 * 64);
      seen.push_back("eval " +
                     std::to_string(message.eval_report().metrics().step()));
    }
  }
  EXPECT_THAT(seen, ElementsAre("step 1", "step 2", "eval 2", "step 3",
                                "step 4", "eval 4"));
}

TEST_F(JobSessionTest, OnlyRankZeroReportsValidationsAndKeepsTheStepLog) {
  std::atomic<int> evals{0};
  ranks_.on_eval = [&] {
    ++evals;
    return absl::OkStatus();
  };
  worker::v1::Prepare prepare = TinyPrepare();
  prepare.mutable_job()->mutable_eval()->set_batches(1);
  Begin(prepare);
  Start();
  AttachRequest message;
  do {
    message = Take(outbox_);
    EXPECT_FALSE(message.has_eval_report());
  } while (message.has_step_report());
  EXPECT_EQ(evals, 1);
  EXPECT_FALSE(
      std::filesystem::exists(prepare.artifacts() + "/steps.rank-0.jsonl"));
}

TEST_F(JobSessionTest, StepLogOfRankZeroHasALineForEveryStep) {
  worker::v1::Prepare prepare = TinyPrepare();
  prepare.mutable_binding()->set_rank(0);
  Begin(prepare);
  Start();
  TakeFinished();
  std::ifstream file(prepare.artifacts() + "/steps.rank-0.jsonl");
  std::string line;
  for (int step = 1; step <= 3; ++step) {
    ASSERT_TRUE(std::getline(file, line));
    EXPECT_THAT(line, HasSubstr("\"step\":" + std::to_string(step) + ","));
  }
  EXPECT_FALSE(std::getline(file, line));
}

TEST_F(JobSessionTest, FailedOutputFailsTheJob) {
  ranks_.on_write = [] { return absl::DataLossError("disk full"); };
  worker::v1::Prepare prepare = TinyPrepare();
  prepare.mutable_job()->mutable_output()->set_final_parameters(true);
  Begin(prepare);
  Start();
  const Finished finished = TakeFinished();
  EXPECT_EQ(finished.code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_THAT(finished.message(),
              AllOf(HasSubstr("/parameters"), HasSubstr("disk full")));
  EXPECT_EQ(finished.step(), 3);
}

TEST_F(JobSessionTest, GradientsAreWrittenAfterTheirStepAlone) {
  std::atomic<int64_t> step{0};
  std::vector<std::string> folders;
  std::vector<int64_t> steps;
  ranks_.on_step = [&](int64_t at) {
    step = at;
    return absl::OkStatus();
  };
  ranks_.on_write_gradients = [&](const std::string& folder) {
    EXPECT_TRUE(std::filesystem::is_directory(folder));
    folders.push_back(folder);
    steps.push_back(step);
    return absl::OkStatus();
  };
  worker::v1::Prepare prepare = TinyPrepare();
  prepare.mutable_job()->mutable_output()->set_gradients_step(2);
  Begin(prepare);
  Start();
  EXPECT_EQ(TakeFinished().code(), kOk);
  EXPECT_THAT(folders, ElementsAre(prepare.artifacts() + "/gradients"));
  EXPECT_THAT(steps, ElementsAre(2));
}

TEST_F(JobSessionTest, TapsAreWrittenAfterTheirStep) {
  std::vector<int64_t> steps;
  std::vector<std::string> folders;
  ranks_.on_step = [&](int64_t at) {
    steps.push_back(at);
    return absl::OkStatus();
  };
  ranks_.on_write_taps = [&](const std::string& folder) {
    EXPECT_TRUE(std::filesystem::is_directory(folder));
    EXPECT_THAT(steps, ElementsAre(1, 2));
    folders.push_back(folder);
    return absl::DataLossError("disk full");
  };
  worker::v1::Prepare prepare = TinyPrepare();
  prepare.mutable_job()->mutable_output()->set_tap_step(2);
  Begin(prepare);
  Start();
  EXPECT_THAT(TakeFinished().message(),
              AllOf(HasSubstr("writing taps to "), HasSubstr("disk full")));
  EXPECT_THAT(folders, ElementsAre(prepare.artifacts() + "/taps"));
}

TEST_F(JobSessionTest, RoutingIsWrittenAfterEveryStepAndBeforeTheEnd) {
  std::vector<std::string> folders;
  ranks_.on_write_routing = [&](const std::string& folder) {
    EXPECT_TRUE(std::filesystem::is_directory(folder));
    folders.push_back(folder);
    return absl::OkStatus();
  };
  ranks_.on_finish_routing = [&] {
    EXPECT_EQ(folders.size(), 3);
    return absl::DataLossError("disk full");
  };
  worker::v1::Prepare prepare = TinyPrepare();
  prepare.mutable_job()->mutable_output()->set_routing(true);
  Begin(prepare);
  Start();
  EXPECT_THAT(TakeFinished().message(),
              AllOf(HasSubstr("writing routing"), HasSubstr("disk full")));
  EXPECT_THAT(folders, ::testing::Each(prepare.artifacts() + "/routing"));
}

TEST_F(JobSessionTest, FailedGradientsFailTheJob) {
  ranks_.on_write_gradients = [](const std::string&) {
    return absl::DataLossError("disk full");
  };
  worker::v1::Prepare prepare = TinyPrepare();
  prepare.mutable_job()->mutable_output()->set_gradients_step(1);
  Begin(prepare);
  Start();
  const Finished finished = TakeFinished();
  EXPECT_THAT(finished.message(),
              AllOf(HasSubstr("/gradients"), HasSubstr("disk full")));
  EXPECT_EQ(finished.step(), 1);
}

TEST_F(JobSessionTest, ArtifactsFolderThatCannotBeMadeIsNamed) {
  worker::v1::Prepare prepare = TinyPrepare();
  prepare.set_artifacts("/proc/none/artifacts");
  Begin(prepare);
  EXPECT_THAT(TakeFinished().message(), HasSubstr("/proc/none/artifacts"));
}

}  // namespace
}  // namespace weft::service
