#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_matchers.h"
#include "coordinator/core/admission.h"
#include "coordinator/core/dispatcher.h"
#include "coordinator/core/dispatcher_fixture.h"
#include "coordinator/core/test_fakes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/rules/test_jobs.h"
#include "schedule/rules/validate.h"

namespace weft::coordinator {
namespace {

using schedule::MakeJobWith;
using schedule::MakeLegalJob;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::SizeIs;

// Weak errors, clear ones, and who wins.
class RootCauseTest : public DispatcherTest {
 protected:
  RootCauseTest() {
    AddWorkers(3);
    id_ = Submit(MakeLegalJob(3, 1));
    StartJob(id_);
  }
  std::string id_;
};

TEST_F(RootCauseTest, ALostWorkerOutweighsPeersThatMissIt) {
  Worker(0).SayFinished(absl::StatusCode::kDeadlineExceeded, 1,
                        "group ep: rank 2 did not answer");
  EXPECT_EQ(Get(id_).state(), v1::JOB_STATE_STOPPING);
  EXPECT_TRUE(Worker(1).Read().at(0).has_stop());
  Worker(2).Break();
  EXPECT_EQ(Get(id_).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Get(id_).message(), HasSubstr("rank 2 (worker w-2) was lost"));
}

TEST_F(RootCauseTest, AnErrorOfItsOwnOutweighsPeersThatMissIt) {
  Worker(0).SayFinished(absl::StatusCode::kUnavailable, 1, "peer 1 went away");
  Worker(1).SayFinished(absl::StatusCode::kInternal, 1,
                        "rank 1: loss is not finite");
  EXPECT_EQ(Get(id_).state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Get(id_).message(),
            "rank 1 (worker w-1) failed: INTERNAL: loss is not finite");
  // What comes later changes nothing.
  Worker(2).SayFinished(absl::StatusCode::kInternal, 1, "later");
  EXPECT_THAT(Get(id_).message(), HasSubstr("rank 1"));
  EXPECT_EQ(dispatcher_->ClusterInfo().idle_workers(), 3);
}

TEST_F(RootCauseTest, APeerErrorCountsWhenNothingBetterComes) {
  Worker(0).SayFinished(absl::StatusCode::kAborted, 1, "aborted");
  Worker(1).SayFinished(absl::StatusCode::kDeadlineExceeded, 1,
                        "group ep: rank 2 did not answer");
  EXPECT_EQ(Get(id_).state(), v1::JOB_STATE_STOPPING);
  Worker(2).SayFinished(absl::StatusCode::kCancelled, 1, "stopped");
  EXPECT_EQ(Get(id_).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Get(id_).message(),
              AllOf(HasSubstr("rank 1"), HasSubstr("DEADLINE_EXCEEDED"),
                    HasSubstr("rank 2 did not answer")));
}

TEST_F(RootCauseTest, WaitingForABetterCauseEnds) {
  Worker(0).SayFinished(absl::StatusCode::kDeadlineExceeded, 1, "no answer");
  Wait(absl::Milliseconds(1499));
  EXPECT_EQ(Get(id_).state(), v1::JOB_STATE_STOPPING);
  Wait(absl::Milliseconds(1));
  EXPECT_EQ(Get(id_).state(), v1::JOB_STATE_FAILED);
}

TEST_F(RootCauseTest, FinishingEarlyWithoutAnErrorIsAnError) {
  Worker(1).SayFinished(absl::StatusCode::kOk, 2);
  EXPECT_EQ(Get(id_).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Get(id_).message(),
              HasSubstr("rank 1 (worker w-1) finished after step 2 of 3"));
}

TEST_F(RootCauseTest, FinishingWithoutTheReportsIsAnError) {
  RunSteps(1, 2);
  Worker(0).SayStep(3);
  Worker(0).SayFinished(absl::StatusCode::kOk, 3);
  Worker(1).SayFinished(absl::StatusCode::kOk, 3);
  EXPECT_EQ(Get(id_).state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Get(id_).message(),
            "rank 1 (worker w-1) finished after step 3 of 3, having reported "
            "2, without an error");
}

TEST_F(RootCauseTest, StepsOutOfOrderAreAnError) {
  Worker(1).SayStep(2);
  EXPECT_EQ(Get(id_).message(), "rank 1 reported step 2 where step 1 was due");
}

TEST_F(RootCauseTest, CancellingKeepsItsOutcomeWhenAWorkerIsLost) {
  Cancel(id_, "enough");
  Worker(0).Break();
  Worker(1).SayFinished(absl::StatusCode::kCancelled, 1);
  Worker(2).SayFinished(absl::StatusCode::kCancelled, 1);
  EXPECT_EQ(Get(id_).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Get(id_).message(),
            "cancelled: enough; rank 0 (worker w-0) was lost: its stream "
            "broke");
}

TEST_F(DispatcherTest, ARankThatTakesItselfForAnotherFailsTheJob) {
  AddWorkers(2);
  const std::string id = Submit(MakeLegalJob(2, 2));
  ReadAll();
  Worker(1).rank = 0;
  Worker(1).SayRendezvous();
  EXPECT_EQ(Get(id).message(), "rank 1 (worker w-1) takes itself for rank 0");
}

TEST_F(DispatcherTest, MessagesOutOfTurnFailTheJob) {
  AddWorkers(2);
  const std::string id = Submit(MakeLegalJob(2, 2));
  ReadAll();
  Worker(0).SayPrepared();
  EXPECT_EQ(Get(id).message(), "rank 0 (worker w-0) sent Prepared out of turn");
}

TEST_F(DispatcherTest, RefusedJobsLeaveTheStoreAlone) {
  const absl::StatusOr<v1::Job> job =
      TrySubmit(MakeJobWith("steps: -1 model { vocab_size: 1 }"), "r1");
  EXPECT_THAT(job, StatusIs(absl::StatusCode::kInvalidArgument,
                            AllOf(HasSubstr("2 rules"), HasSubstr("steps=-1"),
                                  HasSubstr("model.vocab_size=1"))));
  EXPECT_TRUE(job.status().GetPayload(schedule::kBadRequestUrl).has_value());
  ASSERT_OK_AND_ASSIGN(JobPage page, store_.ListJobs(10, 0));
  EXPECT_THAT(page.jobs, IsEmpty());
  // The request id is free for the job put right.
  EXPECT_OK(TrySubmit(MakeLegalJob(), "r1"));
}

TEST_F(DispatcherTest, CompilerFaultsAreInternal) {
  compiler_.error = absl::InternalError("cycle at op 7");
  EXPECT_THAT(TrySubmit(MakeLegalJob()),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("does not compile: cycle at op 7")));
}

TEST_F(DispatcherTest, APlanTooLargeToTravelIsRefused) {
  compiler_.unit_name_bytes = kMaxPlanBytes;
  EXPECT_THAT(TrySubmit(MakeLegalJob()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("batch.global_batch=4 makes a plan"),
                             HasSubstr("at most 62914560 bytes"))));
  compiler_.unit_name_bytes = kMaxPlanBytes - 1000;
  EXPECT_OK(TrySubmit(MakeLegalJob()));
}

TEST_F(DispatcherTest, SubmittingTwiceWithOneRequestIdMakesOneJob) {
  ASSERT_OK_AND_ASSIGN(v1::Job first, TrySubmit(MakeLegalJob(), "r1"));
  ASSERT_OK_AND_ASSIGN(v1::Job second, TrySubmit(MakeLegalJob(), "r1"));
  EXPECT_EQ(first.id(), second.id());
  EXPECT_THAT(
      TrySubmit(MakeJobWith("steps: 4"), "r1"),
      StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(first.id())));
  ASSERT_OK_AND_ASSIGN(v1::Job third, TrySubmit(MakeLegalJob(), "r2"));
  EXPECT_NE(first.id(), third.id());
  EXPECT_THAT(
      TrySubmit(MakeLegalJob(), std::string(129, 'x')),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("request_id")));
}

TEST_F(DispatcherTest, ARetryGetsItsJobWhateverTheRulesHaveBecome) {
  ASSERT_OK_AND_ASSIGN(v1::Job first, TrySubmit(MakeLegalJob(), "r1"));
  compiler_.error = absl::InternalError("the compiler of another version");
  ASSERT_OK_AND_ASSIGN(v1::Job second, TrySubmit(MakeLegalJob(), "r1"));
  EXPECT_EQ(first.id(), second.id());
}

TEST_F(DispatcherTest, JobIdsAreNamesWithRandomDigits) {
  EXPECT_EQ(Submit(MakeLegalJob()), "test-1000");
  v1::TrainingJob unnamed = MakeLegalJob();
  unnamed.clear_name();
  EXPECT_THAT(Submit(unnamed), MatchesRegex("job-[0-9a-f]{4}"));
  next_random_ = 0x1000;  // taken: the next one is used
  EXPECT_EQ(Submit(MakeLegalJob()), "test-1001");
}

TEST_F(DispatcherTest, ListsJobsNewestFirstInPages) {
  std::vector<std::string> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(Submit(MakeLegalJob()));
  v1::ListJobsRequest request;
  request.set_page_size(2);
  ASSERT_OK_AND_ASSIGN(v1::ListJobsResponse page, dispatcher_->List(request));
  ASSERT_EQ(page.jobs_size(), 2);
  EXPECT_EQ(page.jobs(0).id(), ids[2]);
  request.set_page_token(page.next_page_token());
  ASSERT_OK_AND_ASSIGN(page, dispatcher_->List(request));
  ASSERT_EQ(page.jobs_size(), 1);
  EXPECT_EQ(page.jobs(0).id(), ids[0]);
  EXPECT_THAT(page.next_page_token(), IsEmpty());
  request.set_page_token("x");
  EXPECT_THAT(dispatcher_->List(request),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("page_token=\"x\"; must be")));
}

TEST_F(DispatcherTest, WarningsStayWithTheJob) {
  const std::string id = Submit(MakeLegalJob(1, 1));
  EXPECT_THAT(Get(id).warnings(),
              ElementsAre(HasSubstr("hides nothing"), HasSubstr("world=1")));
}

TEST_F(DispatcherTest, GroupDeadlinesAreVisible) {
  AddWorkers(4);
  v1::TrainingJob spec = MakeLegalJob(4, 2);
  spec.mutable_limits()->set_collective_timeout_ms(3000);
  const v1::Job job = Get(Submit(spec));
  ASSERT_EQ(job.group_deadlines_size(), 6);
  EXPECT_EQ(job.group_deadlines(0).group(), "ep");
  EXPECT_EQ(job.group_deadlines(0).timeout_ms(), 3000);
}

TEST_F(DispatcherTest, AFailingStoreDoesNotHoldUpARunningJob) {
  AddWorkers(1);
  const std::string id = Submit(MakeLegalJob(1, 1));
  StartJob(id);
  store_.FailWritesForTest(absl::UnavailableError("disk full"));
  RunSteps(1, 3);
  FinishAll(3);
  EXPECT_THAT(TrySubmit(MakeLegalJob()),
              StatusIs(absl::StatusCode::kUnavailable, "disk full"));
  dispatcher_->Tick();
  store_.FailWritesForTest(absl::OkStatus());
  dispatcher_->Tick();
  ASSERT_OK_AND_ASSIGN(v1::Job job, store_.GetJob(id));
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  ASSERT_OK_AND_ASSIGN(auto updates, store_.LatestUpdates(id, 4));
  EXPECT_THAT(updates, SizeIs(4));
  EXPECT_EQ(updates.back().event().state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(DispatcherTest, AJobThatEndedWhileTheStoreFailsHasEnded) {
  AddWorkers(1);
  const std::string id = Submit(MakeLegalJob(1, 1));
  StartJob(id);
  store_.FailWritesForTest(absl::UnavailableError("disk full"));
  RunSteps(1, 3);
  FinishAll(3);
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(TryCancel(id), StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_OK_AND_ASSIGN(v1::ListJobsResponse page,
                       dispatcher_->List(v1::ListJobsRequest()));
  ASSERT_EQ(page.jobs_size(), 1);
  EXPECT_EQ(page.jobs(0).state(), v1::JOB_STATE_SUCCEEDED);
}

// Reads what a watch has now, as text.
std::vector<std::string> Drain(Watch& watch) {
  std::vector<std::string> seen;
  v1::WatchJobResponse message;
  while (true) {
    const Watch::Result result = watch.Next(&message);
    if (result == Watch::kWait) return seen;
    if (result == Watch::kEnd) {
      seen.push_back("end");
      return seen;
    }
    if (message.has_snapshot()) {
      seen.push_back(absl::StrCat("snapshot ", message.snapshot().step()));
    } else if (message.has_step()) {
      seen.push_back(absl::StrCat("step ", message.step().step()));
    } else if (message.has_event()) {
      seen.push_back(v1::JobState_Name(message.event().state()));
    }
  }
}

TEST_F(DispatcherTest, AWatchShowsAJobFromItsStartToItsEnd) {
  AddWorkers(1);
  const std::string id = Submit(MakeLegalJob(1, 1));
  int news = 0;
  ASSERT_OK_AND_ASSIGN(auto watch,
                       dispatcher_->OpenWatch(id, 0, [&] { ++news; }));
  EXPECT_THAT(Drain(*watch), ElementsAre("snapshot 0"));
  EXPECT_EQ(news, 0);
  StartJob(id);
  EXPECT_EQ(news, 1);
  RunSteps(1, 2);
  EXPECT_EQ(news, 1);  // once, until it has read
  EXPECT_THAT(Drain(*watch),
              ElementsAre("JOB_STATE_RUNNING", "step 1", "step 2"));
  RunSteps(3, 3);
  FinishAll(3);
  EXPECT_EQ(news, 2);
  EXPECT_THAT(Drain(*watch), ElementsAre("step 3", "JOB_STATE_SUCCEEDED",
                                         "snapshot 3", "end"));
}

TEST_F(DispatcherTest, AWatchResumesAfterARestart) {
  AddWorkers(1);
  const std::string id = Submit(MakeLegalJob(1, 1));
  StartJob(id);
  RunSteps(1, 1);
  const int64_t revision = Get(id).revision();
  RunSteps(2, 3);
  FinishAll(3);
  Restart();
  ASSERT_OK_AND_ASSIGN(auto watch, dispatcher_->OpenWatch(id, revision, [] {}));
  EXPECT_THAT(Drain(*watch),
              ElementsAre("step 2", "step 3", "JOB_STATE_SUCCEEDED",
                          "snapshot 3", "end"));
  EXPECT_THAT(dispatcher_->OpenWatch("nobody", 0, [] {}),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(dispatcher_->OpenWatch(id, 1000, [] {}),
              StatusIs(absl::StatusCode::kOutOfRange));
}

// The whole surface from many threads; ThreadSanitizer watches.
TEST_F(DispatcherTest, IsThreadSafe) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      FakeWorker worker(dispatcher_.get(), absl::StrCat("t-", t));
      for (int i = 0; i < 20; ++i) {
        absl::StatusOr<v1::Job> job = dispatcher_->Submit([&] {
          v1::SubmitJobRequest request;
          *request.mutable_job() = MakeLegalJob(1 + t % 2, 1);
          return request;
        }());
        EXPECT_OK(job);
        auto watch = dispatcher_->OpenWatch(job->id(), 0, [] {});
        EXPECT_OK(watch);
        Drain(**watch);
        worker.Heartbeat();
        worker.Read();
        worker.SayRendezvous();
        worker.Read();
        worker.SayPrepared();
        TryCancel(job->id()).status().IgnoreError();
        worker.Read();
        worker.SayFinished(absl::StatusCode::kCancelled, 0);
        dispatcher_->Tick();
        dispatcher_->ListWorkers();
      }
      worker.Break();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(dispatcher_->ClusterInfo().workers(), 0);
}

}  // namespace
}  // namespace weft::coordinator
