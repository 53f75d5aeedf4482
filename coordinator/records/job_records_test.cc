#include "coordinator/records/job_records.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "records/testing/event_reader.h"

namespace weft::coordinator {
namespace {

using records::Event;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
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
  // Until that many records are lost.
  void AwaitErrors(int errors) const {
    const auto deadline = DeadlineAfter(absl::Seconds(30));
    while (errors_ < errors && std::chrono::steady_clock::now() < deadline) {
      Notification().WaitForNotificationWithTimeout(absl::Milliseconds(5));
    }
    EXPECT_EQ(errors_, errors);
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
  clock_.Advance(absl::Milliseconds(1500));
  records_->OnStep(job, Step(2));
  v1::EvalMetrics eval;
  eval.set_step(2);
  eval.set_loss(0.75);
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
  EXPECT_EQ(errors_, 0);
  ASSERT_OK_AND_ASSIGN(const std::vector<Event> read,
                       records::ReadEvents(events[0]));
  ASSERT_THAT(read, SizeIs(4));
  EXPECT_EQ(read[1].step, 1);
  EXPECT_EQ(read[1].wall_time, 1700000000);
  EXPECT_EQ(read[1].scalars.at("lm loss"), 10);
  EXPECT_EQ(read[1].scalars.at("batch-size"), 8);
  EXPECT_EQ(read[2].step, 2);
  EXPECT_EQ(read[2].wall_time, 1700000001.5);
  EXPECT_EQ(read[2].scalars.at("lm loss"), 5);
  EXPECT_EQ(read[3].step, 2);
  EXPECT_EQ(read[3].wall_time, 1700000001.5);
  EXPECT_THAT(read[3].scalars, ElementsAre(Pair("lm loss validation", 0.75f)));
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

// As on a volume that was full for a while: the first record of "a" finds a
// folder in the way of its log.
TEST_F(JobRecordsTest, ALogIsWrittenAgainAfterItsFileCanBe) {
  const v1::Job job = Job("a");
  const std::string log = job.artifacts() + "/steps.jsonl";
  std::filesystem::create_directories(log);
  records_->OnStep(job, Step(1));
  AwaitErrors(1);
  std::filesystem::remove(log);
  records_->OnStep(job, Step(2));
  Finish();
  EXPECT_EQ(errors_, 1);
  EXPECT_THAT(ReadFile(log), StartsWith("{\"kind\":\"step\",\"step\":2,"));
  // The events lost nothing by it.
  const std::vector<std::string> events =
      FilesIn(job.artifacts() + "/tensorboard");
  ASSERT_THAT(events, SizeIs(1));
}

TEST_F(JobRecordsTest, EventsThatCannotBeWrittenLeaveTheLogAlone) {
  const v1::Job job = Job("a");
  std::filesystem::create_directories(job.artifacts());
  const std::string folder = job.artifacts() + "/tensorboard";
  std::ofstream(folder) << "in the way";
  records_->OnStep(job, Step(1));
  AwaitErrors(1);
  std::filesystem::remove(folder);
  records_->OnStep(job, Step(2));
  Finish();
  EXPECT_EQ(errors_, 1);
  EXPECT_THAT(ReadFile(job.artifacts() + "/steps.jsonl"),
              AllOf(HasSubstr("\"step\":1,"), HasSubstr("\"step\":2,")));
  EXPECT_THAT(FilesIn(folder), SizeIs(1));
}

// A log that breaks in the middle: what it has stays, without the line that was
// cut off.
TEST_F(JobRecordsTest, ALogThatBreaksGoesOnAfterItsLastWholeLine) {
  const v1::Job job = Job("a");
  const std::string log = job.artifacts() + "/steps.jsonl";
  std::filesystem::create_directories(job.artifacts());
  std::filesystem::create_symlink("/dev/full", log);
  records_->OnStep(job, Step(1));
  AwaitErrors(1);
  std::filesystem::remove(log);
  std::ofstream(log) << "{\"step\":0}\n{\"st";
  records_->OnStep(job, Step(2));
  Finish();
  EXPECT_THAT(ReadFile(log),
              StartsWith("{\"step\":0}\n{\"kind\":\"step\",\"step\":2,"));
}

// Opening a FIFO that nobody reads hangs, as a dead network volume does.
TEST_F(JobRecordsTest, AVolumeThatHangsIsWaitedForOnlyAsLongAsAsked) {
  const v1::Job job = Job("a");
  const std::string log = job.artifacts() + "/steps.jsonl";
  std::filesystem::create_directories(job.artifacts());
  ASSERT_EQ(mkfifo(log.c_str(), 0600), 0);
  for (int step = 1; step <= 3; ++step) records_->OnStep(job, Step(step));
  EXPECT_EQ(records_->Finish(absl::Milliseconds(1)), 3);
  EXPECT_EQ(errors_, 3);
  records_->OnStep(job, Step(4));
  EXPECT_EQ(errors_, 4);
  const int reader = open(log.c_str(), O_RDWR | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_EQ(records_->Finish(absl::InfiniteDuration()), 0);
  Finish();
  close(reader);
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
