#include "coordinator/core/dispatcher.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status_matchers.h"
#include "coordinator/core/dispatcher_fixture.h"
#include "coordinator/core/test_fakes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/rules/test_jobs.h"

namespace weft::coordinator {
namespace {

using schedule::MakeLegalJob;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST_F(DispatcherTest, RunsAJobFromPrepareToSucceeded) {
  AddWorkers(2);
  const std::string id = Submit(MakeLegalJob(2, 2));
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_STARTING);
  EXPECT_THAT(Get(id).workers(), ElementsAre("w-0", "w-1"));
  EXPECT_EQ(Get(id).artifacts(), "/artifacts/" + id);
  EXPECT_EQ(Get(id).arena_bytes(), 4096);
  EXPECT_EQ(Get(id).message(), "2 workers prepare");

  for (FakeWorker* worker : Workers()) {
    const auto messages = worker->Read();
    ASSERT_THAT(messages, SizeIs(1));
    const auto& prepare = messages[0].prepare();
    EXPECT_EQ(prepare.binding().world(), 2);
    EXPECT_EQ(prepare.binding().ep(), 2);
    EXPECT_EQ(prepare.units().hash(), kFakeUnitsHash);
    EXPECT_EQ(prepare.job().name(), "test");
    EXPECT_EQ(prepare.epoch(), 1);
    EXPECT_FALSE(prepare.has_eval());
  }
  Worker(0).SayRendezvous();
  EXPECT_THAT(Worker(0).Read(), IsEmpty());
  Worker(1).SayRendezvous();
  for (FakeWorker* worker : Workers()) {
    const auto messages = worker->Read();
    ASSERT_THAT(messages, SizeIs(1));
    ASSERT_EQ(messages[0].rendezvous_complete().ranks_size(), 2);
    EXPECT_THAT(messages[0].rendezvous_complete().ranks(1).addresses(),
                ElementsAre("address of w-1"));
  }
  Worker(1).SayPrepared();
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_STARTING);
  Worker(0).SayPrepared();
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_RUNNING);
  EXPECT_TRUE(Get(id).has_start_time());
  EXPECT_TRUE(Worker(0).Read().at(0).has_start());
  EXPECT_TRUE(Worker(1).Read().at(0).has_start());

  RunSteps(1, 3);
  Worker(0).SayFinished(absl::StatusCode::kOk, 3);
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_RUNNING);
  Worker(1).SayFinished(absl::StatusCode::kOk, 3);
  const v1::Job job = Get(id);
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.step(), 3);
  EXPECT_EQ(job.first_step().step(), 1);
  EXPECT_EQ(job.last_step().loss(), 2.5);
  EXPECT_EQ(job.last_step().step_seconds(), 2);  // of the slowest
  EXPECT_EQ(job.last_step().ep_seconds(), 0.5);  // mean
  EXPECT_EQ(job.last_step().ep_wire_bytes(), 200);
  EXPECT_EQ(job.last_step().tokens(), 64);
  EXPECT_TRUE(job.has_end_time());
  EXPECT_EQ(dispatcher_->ClusterInfo().idle_workers(), 2);
}

TEST_F(DispatcherTest, RunsThreeJobsInARowOnTheSameWorkers) {
  AddWorkers(2);
  const std::string first = Submit(MakeLegalJob(2, 2));
  const std::string second = Submit(MakeLegalJob(2, 2));
  const std::string third = Submit(MakeLegalJob(1, 1));
  EXPECT_EQ(Get(second).message(),
            "waits for 2 idle workers: 2 attached, 0 idle");
  EXPECT_EQ(Get(third).message(), "waits for the jobs queued before it");
  StartJob(first);
  RunSteps(1, 3);
  FinishAll(3);
  EXPECT_EQ(Get(first).state(), v1::JOB_STATE_SUCCEEDED);
  StartJob(second);
  EXPECT_EQ(Worker(0).epoch, 2);
  RunSteps(1, 3);
  Worker(0).SayFinished(absl::StatusCode::kOk, 3);
  // The third job needs one worker, and one is idle again.
  Worker(0).Read();
  EXPECT_EQ(Worker(0).job_id, third);
  EXPECT_EQ(Worker(0).epoch, 3);
  Worker(1).SayFinished(absl::StatusCode::kOk, 3);
  EXPECT_EQ(Get(second).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Get(third).state(), v1::JOB_STATE_STARTING);
}

TEST_F(DispatcherTest, ALostWorkerFailsTheJobAtOnceAndFreesTheOthers) {
  AddWorkers(2);
  const std::string id = Submit(MakeLegalJob(2, 2));
  StartJob(id);
  RunSteps(1, 2);
  Worker(1).Break();
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Get(id).message(),
              HasSubstr("rank 1 (worker w-1) was lost: its stream broke"));
  // The survivor is busy until it has cleaned up.
  EXPECT_TRUE(Worker(0).Read().at(0).has_stop());
  EXPECT_EQ(dispatcher_->ClusterInfo().idle_workers(), 0);
  const std::string next = Submit(MakeLegalJob(1, 1));
  EXPECT_EQ(Get(next).state(), v1::JOB_STATE_QUEUED);
  Worker(0).SayFinished(absl::StatusCode::kCancelled, 2, "stopped");
  EXPECT_EQ(Get(next).state(), v1::JOB_STATE_STARTING);
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_FAILED);
}

TEST_F(DispatcherTest, AWorkerThatLeavesIsForgottenAtOnce) {
  AddWorkers(2);
  const std::string id = Submit(MakeLegalJob(2, 2));
  StartJob(id);
  observer_.Take();
  Worker(1).Leave();
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(observer_.Take(), ElementsAre("w-1 is lost", "w-1 is forgotten"));
  // What an old stream still tells counts for nothing once the worker is back.
  FakeWorker again(dispatcher_.get(), "w-1", /*incarnation=*/2);
  Worker(1).Leave();
  EXPECT_THAT(observer_.Take(), ElementsAre("w-1 is there"));
  Worker(0).Break();
  EXPECT_THAT(observer_.Take(), ElementsAre("w-0 is lost"));
}

TEST_F(DispatcherTest, ASilentWorkerIsLostAfterTheTimeout) {
  AddWorkers(2);
  const std::string id = Submit(MakeLegalJob(2, 2));
  StartJob(id);
  Wait(absl::Seconds(3));
  Worker(0).Heartbeat();
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_RUNNING);
  Wait(absl::Milliseconds(1100));
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(
      Get(id).message(),
      HasSubstr("rank 1 (worker w-1) was lost: no sign of life for 4s"));
  ASSERT_TRUE(Worker(1).closed().has_value());
  EXPECT_FALSE(Worker(0).closed().has_value());
  // What it says afterwards counts for nothing.
  Worker(1).SayStep(1);
  EXPECT_EQ(Get(id).step(), 0);
  EXPECT_EQ(dispatcher_->ListWorkers().at(1).state(), v1::WORKER_STATE_LOST);
}

TEST_F(DispatcherTest, AStallOfTheCoordinatorLosesNobody) {
  AddWorkers(2);
  const std::string id = Submit(MakeLegalJob(2, 2));
  StartJob(id);
  HeartbeatFor(absl::Seconds(1));
  clock_.Advance(absl::Seconds(6));
  dispatcher_->Tick();
  EXPECT_EQ(dispatcher_->ClusterInfo().workers(), 2);
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_RUNNING);
  // From here on time counts again.
  Wait(absl::Seconds(3));
  Worker(0).Heartbeat();
  Wait(absl::Milliseconds(1100));
  EXPECT_EQ(dispatcher_->ClusterInfo().workers(), 1);
}

TEST_F(DispatcherTest, AnswersWhileItTicks) {
  Wait(absl::Seconds(10));
  EXPECT_TRUE(dispatcher_->IsAnswering());
  clock_.Advance(absl::Seconds(5));
  EXPECT_FALSE(dispatcher_->IsAnswering());
  dispatcher_->Tick();
  EXPECT_TRUE(dispatcher_->IsAnswering());
}

// A store that is slow for minutes is waited for; nobody waits for ever.
TEST_F(DispatcherTest, IsStuckLongAfterItStoppedAnswering) {
  Wait(absl::Seconds(1));
  clock_.Advance(absl::Minutes(10));
  EXPECT_FALSE(dispatcher_->IsAnswering());
  EXPECT_FALSE(dispatcher_->IsStuck());
  clock_.Advance(absl::Minutes(6));
  EXPECT_TRUE(dispatcher_->IsStuck());
  dispatcher_->Tick();
  EXPECT_FALSE(dispatcher_->IsStuck());
}

TEST_F(DispatcherTest, AStallMovesTheDeadlinesOfAJobThatStops) {
  AddWorkers(1);
  const std::string id = Submit(MakeLegalJob(1, 1));
  StartJob(id);
  Cancel(id, "");
  HeartbeatFor(absl::Seconds(8));
  clock_.Advance(absl::Minutes(10));
  dispatcher_->Tick();
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_STOPPING);
  EXPECT_EQ(dispatcher_->ClusterInfo().workers(), 1);
  HeartbeatFor(absl::Seconds(2));
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(DispatcherTest, AWorkerComesBackAfterItWasLost) {
  AddWorkers(1);
  FakeWorker twin(dispatcher_.get(), "w-0", /*incarnation=*/2);
  EXPECT_THAT(twin.attach_status,
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("w-0")));
  Worker(0).Break();
  FakeWorker again(dispatcher_.get(), "w-0", /*incarnation=*/2);
  EXPECT_OK(again.attach_status);
  // The old stream's late words do not touch the new one.
  Worker(0).Break();
  EXPECT_EQ(dispatcher_->ClusterInfo().workers(), 1);
  EXPECT_EQ(dispatcher_->ListWorkers().at(0).restarts(), 1);
  const std::string id = Submit(MakeLegalJob(1, 1));
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_STARTING);
  EXPECT_THAT(again.Read(), SizeIs(1));
}

TEST_F(DispatcherTest, ANewStreamOfTheSameProcessEndsItsJob) {
  AddWorkers(1);
  const std::string id = Submit(MakeLegalJob(1, 1));
  StartJob(id);
  FakeWorker again(dispatcher_.get(), "w-0", /*incarnation=*/1);
  EXPECT_OK(again.attach_status);
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_FAILED);
  EXPECT_TRUE(Worker(0).closed().has_value());
  EXPECT_EQ(dispatcher_->ClusterInfo().idle_workers(), 1);
  EXPECT_EQ(dispatcher_->ListWorkers().at(0).restarts(), 0);
}

TEST_F(DispatcherTest, CancelStopsARunningJob) {
  AddWorkers(2);
  const std::string id = Submit(MakeLegalJob(2, 2));
  StartJob(id);
  RunSteps(1, 1);
  EXPECT_EQ(Cancel(id, "enough").state(), v1::JOB_STATE_STOPPING);
  EXPECT_EQ(Worker(0).Read().at(0).stop().reason(), "cancelled: enough");
  EXPECT_TRUE(Worker(1).Read().at(0).has_stop());
  EXPECT_EQ(Cancel(id, "again").message(), "cancelled: enough");
  Worker(0).SayFinished(absl::StatusCode::kCancelled, 1);
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_STOPPING);
  Worker(1).SayFinished(absl::StatusCode::kCancelled, 1);
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Get(id).message(), "cancelled: enough");
  EXPECT_EQ(dispatcher_->ClusterInfo().idle_workers(), 2);
  EXPECT_THAT(TryCancel(id), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("CANCELLED")));
  EXPECT_THAT(TryCancel("nobody"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(DispatcherTest, CancelWorksWhileQueuedAndWhileStarting) {
  const std::string queued = Submit(MakeLegalJob(2, 2));
  const std::string starting = Submit(MakeLegalJob(1, 1));
  EXPECT_EQ(Cancel(queued, "").state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(dispatcher_->ClusterInfo().queued_jobs(), 1);
  AddWorkers(1);
  EXPECT_EQ(Get(starting).state(), v1::JOB_STATE_STARTING);
  EXPECT_EQ(Cancel(starting, "").state(), v1::JOB_STATE_STOPPING);
  Worker(0).Read();
  Worker(0).SayRendezvous();  // crossed the Stop
  Worker(0).SayFinished(absl::StatusCode::kCancelled, 0);
  EXPECT_EQ(Get(starting).state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(DispatcherTest, AReasonIsKeptUpToAReadableSize) {
  const std::string reason(1 << 20, 'x');
  const std::string queued = Submit(MakeLegalJob(2, 2));
  EXPECT_EQ(Cancel(queued, "a\nb").message(), "cancelled while queued: a b");
  const std::string long_queued = Submit(MakeLegalJob(2, 2));
  EXPECT_LT(Cancel(long_queued, reason).message().size(), 1000);
  AddWorkers(1);
  const std::string running = Submit(MakeLegalJob(1, 1));
  EXPECT_LT(Cancel(running, reason).message().size(), 1000);
}

TEST_F(DispatcherTest, AWorkerThatDoesNotStopIsLost) {
  AddWorkers(2);
  const std::string id = Submit(MakeLegalJob(2, 2));
  StartJob(id);
  Cancel(id, "");
  Worker(0).SayFinished(absl::StatusCode::kCancelled, 0);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(Get(id).state(), v1::JOB_STATE_STOPPING);
    clock_.Advance(absl::Seconds(1));
    Worker(0).Heartbeat();
    Worker(1).Heartbeat();
    dispatcher_->Tick();
  }
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_THAT(*Worker(1).closed(),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(dispatcher_->ClusterInfo().workers(), 1);
}

TEST_F(DispatcherTest, APrepareThatHangsFailsTheJobNamingWhoHangs) {
  AddWorkers(2);
  const std::string id = Submit(MakeLegalJob(2, 2));
  ReadAll();
  Worker(0).SayRendezvous();
  HeartbeatFor(absl::Seconds(119));
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_STARTING);
  HeartbeatFor(absl::Seconds(1));
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Get(id).message(), "rank 1 (worker w-1) did not connect within 2m");
  HeartbeatFor(absl::Seconds(10));  // neither answers Stop
  EXPECT_EQ(dispatcher_->ClusterInfo().workers(), 0);
}

TEST_F(DispatcherTest, HashesThatDifferFailTheJobNamingTheRanks) {
  AddWorkers(3);
  const std::string id = Submit(MakeLegalJob(3, 1));
  ReadAll();
  for (FakeWorker* worker : Workers()) worker->SayRendezvous();
  Worker(0).SayPrepared(5);
  Worker(1).SayPrepared(6);
  Worker(2).SayPrepared(5);
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(Get(id).message(),
            "the collectives that rank 1 (worker w-1) would issue differ from "
            "those of the other ranks");
  for (FakeWorker* worker : Workers()) {
    EXPECT_TRUE(worker->Read().back().has_stop());
  }
}

TEST_F(DispatcherTest, UnitsThatDifferFromThePlanFailTheJob) {
  AddWorkers(2);
  const std::string id = Submit(MakeLegalJob(2, 2));
  ReadAll();
  for (FakeWorker* worker : Workers()) worker->SayRendezvous();
  for (FakeWorker* worker : Workers()) worker->SayPrepared(5, 78);
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Get(id).message(),
              AllOf(HasSubstr("rank 0 (worker w-0), rank 1 (worker w-1)"),
                    HasSubstr("differ from the plan's")));
}

TEST_F(DispatcherTest, LossesThatDifferFailTheJob) {
  AddWorkers(2);
  const std::string id = Submit(MakeLegalJob(2, 2));
  StartJob(id);
  RunSteps(1, 1);
  Worker(0).SayStep(2, 2.5);
  Worker(1).SayStep(2, std::nextafter(2.5, 3));
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Get(id).message(),
              HasSubstr("step 2: loss differs between ranks: rank 0 has 2.5, "
                        "rank 1 has 2.50000000000000"));
  EXPECT_EQ(Get(id).step(), 1);
}

TEST_F(DispatcherTest, StaleReportsAreIgnored) {
  AddWorkers(1);
  const std::string first = Submit(MakeLegalJob(1, 1));
  StartJob(first);
  Cancel(first, "");
  Worker(0).SayFinished(absl::StatusCode::kCancelled, 0);
  const std::string second = Submit(MakeLegalJob(1, 1));
  StartJob(second);
  const int64_t epoch = std::exchange(Worker(0).epoch, 1);
  Worker(0).SayStep(1);
  Worker(0).job_id = first;
  Worker(0).SayStep(1);
  Worker(0).SayFinished(absl::StatusCode::kInternal, 1, "late");
  Worker(0).epoch = epoch;
  Worker(0).SayStep(1);  // the right epoch, the wrong job
  EXPECT_EQ(Get(second).step(), 0);
  EXPECT_EQ(Get(second).state(), v1::JOB_STATE_RUNNING);
  Worker(0).job_id = second;
  RunSteps(1, 3);
  FinishAll(3);
  EXPECT_EQ(Get(second).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(DispatcherTest, AMessageBeforeAnyJobBreaksTheProtocol) {
  AddWorkers(1);
  worker::v1::AttachRequest message;
  message.mutable_register_()->set_worker_id("w-0");
  Worker(0).Say(message);
  EXPECT_THAT(*Worker(0).closed(),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(dispatcher_->ClusterInfo().workers(), 0);
}

TEST_F(DispatcherTest, WorkersAreNamedAndListed) {
  FakeWorker unnamed(dispatcher_.get(), "");
  EXPECT_EQ(unnamed.id, "worker-0");
  AddWorkers(11);
  unnamed.Heartbeat();
  const std::vector<v1::Worker> workers = dispatcher_->ListWorkers();
  ASSERT_THAT(workers, SizeIs(12));
  EXPECT_EQ(workers[2].id(), "w-2");
  EXPECT_EQ(workers[10].id(), "w-10");
  EXPECT_EQ(workers[11].id(), "worker-0");
  EXPECT_EQ(workers[11].figures().threads(), 7);
  EXPECT_EQ(workers[11].state(), v1::WORKER_STATE_IDLE);
}

TEST_F(DispatcherTest, WhatWorkersSayOfThemselvesIsCleaned) {
  worker::v1::Register info;
  info.set_worker_id("w-0");
  info.set_max_protocol_version(1);
  info.set_host("a\x1b[2Jb\n");
  info.set_device(std::string(1 << 20, 'x'));
  info.set_http_address("\x07");
  for (int i = 0; i < 40; ++i) {
    info.add_libraries()->set_name(absl::StrCat("\x1b", i));
  }
  info.mutable_libraries(0)->set_version("1.13.1");
  ASSERT_OK(dispatcher_->Attach(info, std::make_shared<FakeLink>()));
  const v1::Worker worker = dispatcher_->ListWorkers().at(0);
  EXPECT_EQ(worker.host(), "a\\x1b[2Jb ");
  EXPECT_EQ(worker.device().size(), 255);
  EXPECT_EQ(worker.http_address(), "\\x07");
  ASSERT_THAT(worker.libraries(), SizeIs(32));
  EXPECT_EQ(worker.libraries(0).name(), "\\x1b0");
  EXPECT_EQ(worker.libraries(0).version(), "1.13.1");
}

TEST_F(DispatcherTest, LostWorkersAreForgottenInTheEnd) {
  AddWorkers(1);
  Worker(0).Break();
  clock_.Advance(absl::Minutes(9));
  dispatcher_->Tick();
  EXPECT_THAT(dispatcher_->ListWorkers(), SizeIs(1));
  clock_.Advance(absl::Minutes(2));
  dispatcher_->Tick();
  EXPECT_THAT(dispatcher_->ListWorkers(), IsEmpty());
}

TEST_F(DispatcherTest, ShutdownEndsRunningJobsAndKeepsQueuedOnes) {
  AddWorkers(1);
  const std::string running = Submit(MakeLegalJob(1, 1));
  StartJob(running);
  const std::string queued = Submit(MakeLegalJob(1, 1));
  dispatcher_->Shutdown();
  EXPECT_EQ(Get(running).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Get(running).message(), HasSubstr("coordinator was stopped"));
  EXPECT_TRUE(Worker(0).Read().at(0).has_stop());
  EXPECT_THAT(*Worker(0).closed(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(Get(queued).state(), v1::JOB_STATE_QUEUED);
  FakeWorker late(dispatcher_.get(), "late");
  EXPECT_THAT(late.attach_status, StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(DispatcherTest, ShutdownKeepsTheErrorThatAJobStopsFor) {
  AddWorkers(2);
  const std::string id = Submit(MakeLegalJob(2, 2));
  StartJob(id);
  Worker(0).SayFinished(absl::StatusCode::kUnavailable, 1, "peer 1 is silent");
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_STOPPING);
  dispatcher_->Shutdown();
  EXPECT_EQ(Get(id).state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Get(id).message(), HasSubstr("peer 1 is silent"));
}

}  // namespace
}  // namespace weft::coordinator
