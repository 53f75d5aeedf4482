#include "coordinator/records/job_records.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    names.push_back(entry.path().string());
  }
  return names;
}

class JobRecordsTest : public ::testing::Test {
 protected:
  JobRecordsTest() { Start(/*max_waiting=*/10000); }

  void Start(size_t max_waiting) {
    JobRecords::Options options;
    options.clock = &clock_;
    options.on_error = [this] { ++errors_; };
    options.max_waiting = max_waiting;
    records_ = std::make_unique<JobRecords>(std::move(options));
  }
  // All is written when it returns.
  void Finish() { records_.reset(); }

  v1::Job Job(const std::string& id) const {
    v1::Job job;
    job.set_id(id);
    job.set_state(v1::JOB_STATE_RUNNING);
    job.set_artifacts(absl::StrCat(
        ::testing::TempDir(), "/",
        ::testing::UnitTest::GetInstance()->current_test_info()->name(), "/",
        id));
    job.mutable_spec()->mutable_batch()->set_global_batch(8);
    return job;
  }
  static v1::StepMetrics Step(int64_t step) {
    v1::StepMetrics metrics;
    metrics.set_step(step);
    metrics.set_loss(10.0 / step);
    return metrics;
  }

  FakeClock clock_{absl::FromUnixSeconds(1700000000)};
  std::atomic<int> errors_{0};
  std::unique_ptr<JobRecords> records_;
};

TEST_F(JobRecordsTest, StepsAndValidationsOfAJobAreInItsFolderInOrder) {
  const v1::Job job = Job("a");
  records_->OnStep(job, Step(1));
  records_->OnStep(job, Step(2));
  v1::EvalMetrics eval;
  eval.set_step(2);
  records_->OnEval(job, eval);
  Finish();
  const std::string log = ReadFile(job.artifacts() + "/steps.jsonl");
  EXPECT_THAT(
      std::vector<std::string>(absl::StrSplit(log, '\n', absl::SkipEmpty())),
      ElementsAre(StartsWith("{\"kind\":\"step\",\"step\":1,\"loss\":10,"),
                  StartsWith("{\"kind\":\"step\",\"step\":2,\"loss\":5,"),
                  StartsWith("{\"kind\":\"eval\",\"step\":2,")));
  const std::vector<std::string> events =
      FilesIn(job.artifacts() + "/tensorboard");
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_THAT(events[0], HasSubstr("/events.out.tfevents.1700000000."));
  const std::string scalars = ReadFile(events[0]);
  EXPECT_THAT(scalars, HasSubstr("grad-norm"));
  EXPECT_THAT(scalars, HasSubstr("lm loss validation"));
  EXPECT_EQ(errors_, 0);
}

TEST_F(JobRecordsTest, JobsSideBySideHaveTheirOwnFiles) {
  records_->OnStep(Job("a"), Step(1));
  records_->OnStep(Job("b"), Step(1));
  records_->OnStep(Job("a"), Step(2));
  Finish();
  EXPECT_THAT(ReadFile(Job("a").artifacts() + "/steps.jsonl"),
              HasSubstr("\"step\":2,"));
  EXPECT_THAT(ReadFile(Job("b").artifacts() + "/steps.jsonl"),
              HasSubstr("\"step\":1,"));
}

TEST_F(JobRecordsTest, AJobWithoutStepsLeavesNothing) {
  v1::Job job = Job("a");
  records_->OnJobState(job);
  job.set_state(v1::JOB_STATE_CANCELLED);
  records_->OnJobState(job);
  Finish();
  EXPECT_THAT(FilesIn(job.artifacts()), IsEmpty());
  EXPECT_EQ(errors_, 0);
}

TEST_F(JobRecordsTest, WhatCannotBeWrittenIsCountedAndHoldsUpNobody) {
  v1::Job broken = Job("a");
  broken.set_artifacts("/proc/none");
  records_->OnStep(broken, Step(1));
  records_->OnStep(broken, Step(2));
  records_->OnStep(Job("b"), Step(1));
  Finish();
  EXPECT_EQ(errors_, 2);
  EXPECT_THAT(ReadFile(Job("b").artifacts() + "/steps.jsonl"),
              HasSubstr("\"step\":1,"));
}

TEST_F(JobRecordsTest, MoreThanMayWaitIsCounted) {
  Finish();
  Start(/*max_waiting=*/0);
  records_->OnStep(Job("a"), Step(1));
  EXPECT_EQ(errors_, 1);
  Finish();
  EXPECT_THAT(FilesIn(Job("a").artifacts()), IsEmpty());
}

}  // namespace
}  // namespace weft::coordinator
