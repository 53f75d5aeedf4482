// How jobs wait, are placed, and come back after a restart.
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "base/status_matchers.h"
#include "coordinator/core/dispatcher.h"
#include "coordinator/core/dispatcher_fixture.h"
#include "coordinator/core/test_fakes.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/rules/test_jobs.h"

namespace weft::coordinator {
namespace {

using schedule::MakeLegalJob;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(DispatcherTest, AGangWaitsUntilAllItsWorkersAreIdle) {
  AddWorkers(3);
  const std::string big = Submit(MakeLegalJob(4, 2));
  const std::string small = Submit(MakeLegalJob(1, 1));
  EXPECT_EQ(Get(big).state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(Get(big).message(), "waits for 4 idle workers: 3 attached, 3 idle");
  // First in, first out: the small job does not slip past.
  EXPECT_EQ(Get(small).state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(dispatcher_->ClusterInfo().queued_jobs(), 2);
  for (FakeWorker* worker : Workers()) EXPECT_THAT(worker->Read(), IsEmpty());
  AddWorkers(1);
  EXPECT_EQ(Get(big).state(), v1::JOB_STATE_STARTING);
  EXPECT_EQ(Get(small).message(),
            "waits for 1 idle workers: 4 attached, 0 idle");
  EXPECT_EQ(dispatcher_->ClusterInfo().running_jobs(), 1);
}

TEST_F(DispatcherTest, AJobLargerThanTheClusterIsToldSo) {
  AddWorkers(1);
  const std::string says =
      "parallel.world=2 but 1 worker is attached; the job waits";
  ASSERT_OK_AND_ASSIGN(v1::Job job, TrySubmit(MakeLegalJob(2, 2)));
  EXPECT_THAT(job.warnings(), ElementsAre(says));
  EXPECT_THAT(Get(job.id()).warnings(), IsEmpty());
  AddWorkers(1);
  ASSERT_OK_AND_ASSIGN(job, TrySubmit(MakeLegalJob(2, 2)));
  EXPECT_THAT(job.warnings(), IsEmpty());
}

TEST_F(DispatcherTest, WorkersWithoutTheMemoryAreSkipped) {
  FakeWorker small(dispatcher_.get(), "a-0", 1, 5095);
  FakeWorker large(dispatcher_.get(), "b-0", 1, 5096);
  ASSERT_OK_AND_ASSIGN(const v1::Job job, TrySubmit(MakeLegalJob(2, 1)));
  EXPECT_THAT(job.warnings(),
              Contains("parallel.world=2 but 1 worker is attached that has "
                       "the device memory it needs; the job waits"));
  EXPECT_EQ(job.message(),
            "waits for 2 idle workers: 2 attached, 2 idle; 1 attached without "
            "the 5096 bytes of device memory it needs");
  FakeWorker other(dispatcher_.get(), "c-0", 1, 0);  // has no limit
  EXPECT_EQ(Get(job.id()).state(), v1::JOB_STATE_STARTING);
  EXPECT_THAT(Get(job.id()).workers(), ElementsAre("b-0", "c-0"));
}

TEST_F(DispatcherTest, AJobThatFitsNoWorkerIsRefused) {
  FakeWorker small(dispatcher_.get(), "a-0", 1, 4000);
  FakeWorker larger(dispatcher_.get(), "b-0", 1, 5095);
  v1::ValidateJobRequest request;
  *request.mutable_job() = MakeLegalJob(1, 1);
  for (const absl::Status& status :
       {TrySubmit(request.job()).status(),
        dispatcher_->ValidateOnly(request).status()}) {
    EXPECT_THAT(
        status,
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr("a rank needs 5096 bytes of device memory: "
                           "parameters 0, main weights 1000, gradients 0, "
                           "optimizer 0, static values 4000, routed values at "
                           "their bound 96; no attached worker has more than "
                           "5095")));
  }
  EXPECT_EQ(dispatcher_->ClusterInfo().queued_jobs(), 0);
}

TEST_F(DispatcherTest, AJobThatIsValidIsNotQueued) {
  FakeWorker worker(dispatcher_.get(), "a-0", 1, 5096);
  v1::ValidateJobRequest request;
  *request.mutable_job() = MakeLegalJob(1, 1);
  EXPECT_OK(dispatcher_->ValidateOnly(request));
  EXPECT_EQ(dispatcher_->ClusterInfo().queued_jobs(), 0);
}

// Counts the lines that hold a text.
class LineCounter : public google::LogSink {
 public:
  explicit LineCounter(const std::string& text) : text_(text) {
    google::AddLogSink(this);
  }
  ~LineCounter() override { google::RemoveLogSink(this); }
  void send(google::LogSeverity, const char*, const char*, int,
            const google::LogMessageTime&, const char* message,
            size_t size) override {
    const absl::string_view line(message, size);
    if (absl::StrContains(line, text_)) ++lines;
  }

  int lines = 0;

 private:
  const std::string text_;
};

TEST_F(DispatcherTest, AStoreThatFailsIsLoggedWhenItsErrorChanges) {
  AddWorkers(1);
  const std::string id = Submit(MakeLegalJob(2, 2));
  LineCounter log("is not placed yet");
  store_.FailWritesForTest(absl::UnavailableError("disk full"));
  AddWorkers(1);
  for (int i = 0; i < 5; ++i) dispatcher_->Tick();
  EXPECT_EQ(log.lines, 1);
  store_.FailWritesForTest(absl::UnavailableError("disk gone"));
  for (int i = 0; i < 5; ++i) dispatcher_->Tick();
  EXPECT_EQ(log.lines, 2);
  store_.FailWritesForTest(absl::OkStatus());
  dispatcher_->Tick();
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_STARTING);
}

TEST_F(DispatcherTest, AQueuedJobThatIsNotLegalAnyMoreFailsAtRestart) {
  const std::string id = Submit(MakeLegalJob());
  v1::Job job = Get(id);
  job.mutable_spec()->set_steps(0);
  ASSERT_OK(store_.UpdateJob(job, {}));
  Restart();
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Get(id).message(), HasSubstr("not legal for this version"));
}

TEST_F(DispatcherTest, QueuedJobsSurviveARestartAndRunningOnesFail) {
  AddWorkers(2);
  const std::string running = Submit(MakeLegalJob(2, 2));
  StartJob(running);
  RunSteps(1, 2);
  const std::string queued = Submit(MakeLegalJob(2, 2));
  Restart();
  EXPECT_EQ(Get(running).state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Get(running).message(),
            "the coordinator restarted while the job was RUNNING, after step "
            "2; submit it again");
  EXPECT_EQ(Get(running).step(), 2);
  EXPECT_EQ(Get(queued).state(), v1::JOB_STATE_QUEUED);
  AddWorkers(2);
  dispatcher_->CompileNext();
  StartJob(queued);
  EXPECT_EQ(Worker(0).epoch, 2);  // epochs never repeat
}

TEST_F(DispatcherTest, ARestartCompilesWhatIsAtTheHeadOfTheQueue) {
  const std::string first = Submit(MakeLegalJob());
  const std::string second = Submit(MakeLegalJob());
  compiler_.error = absl::InternalError("cycle at op 7");
  Restart();
  EXPECT_EQ(Get(first).message(), "waits until its plan is compiled");
  AddWorkers(2);
  EXPECT_EQ(Get(first).state(), v1::JOB_STATE_QUEUED);
  dispatcher_->CompileNext();
  EXPECT_EQ(Get(first).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Get(first).message(), HasSubstr("cycle at op 7"));
  compiler_.error = absl::OkStatus();
  EXPECT_EQ(Get(second).message(), "waits until its plan is compiled");
  dispatcher_->CompileNext();
  EXPECT_EQ(Get(second).state(), v1::JOB_STATE_STARTING);
}

TEST_F(DispatcherTest, AJobMayBeCancelledWhileItIsCompiled) {
  const std::string id = Submit(MakeLegalJob());
  Restart();
  Notification release;
  Notification begun;
  compiler_.hold = &release;
  compiler_.begun = &begun;
  std::thread compiling([this] { dispatcher_->CompileNext(); });
  begun.WaitForNotification();
  EXPECT_EQ(Cancel(id, "").state(), v1::JOB_STATE_CANCELLED);
  release.Notify();
  compiling.join();
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(DispatcherTest, AJobThatIsCancelledEndsSoAfterARestart) {
  AddWorkers(2);
  const std::string cancelled = Submit(MakeLegalJob(1, 1));
  const std::string failing = Submit(MakeLegalJob(1, 1));
  StartJob(cancelled);
  StartJob(failing);
  Cancel(cancelled, "enough");
  Worker(1).SayFinished(absl::StatusCode::kAborted, 1, "cancelled");
  EXPECT_EQ(Get(cancelled).state(), v1::JOB_STATE_STOPPING);
  Restart();
  EXPECT_EQ(Get(cancelled).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Get(cancelled).message(), "cancelled: enough");
  EXPECT_EQ(Get(failing).state(), v1::JOB_STATE_FAILED);
}

}  // namespace
}  // namespace weft::coordinator
