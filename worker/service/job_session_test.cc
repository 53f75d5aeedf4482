#include "worker/service/job_session.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
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
constexpr int kCancelled = 1;

TEST_F(JobSessionTest, RunsAJobFromPrepareToFinished) {
  Begin(TinyPrepare());
  AttachRequest message = Take(outbox_);
  EXPECT_EQ(message.rendezvous().job_id(), "tiny-1");
  EXPECT_EQ(message.rendezvous().epoch(), 7);
  EXPECT_EQ(message.rendezvous().rank(), 1);
  EXPECT_THAT(message.rendezvous().addresses(), ElementsAre("address-1"));

  session_->OnRendezvousComplete(AllAddresses(prepare_));
  message = Take(outbox_);
  EXPECT_EQ(message.prepared().collective_hash(), 11);
  EXPECT_EQ(message.prepared().assignment_hash(), 22);
  EXPECT_EQ(message.prepared().main_weight_bytes(), 33);
  EXPECT_EQ(message.prepared().device_bytes(), 15);
  EXPECT_EQ(device_bytes_.load(), 15);
  EXPECT_THAT(ranks_.connected_to(),
              ElementsAre(Addresses{"address-0"}, Addresses{"address-1"}));

  session_->OnStart(StartOf(prepare_));
  for (int step = 1; step <= 3; ++step) {
    message = Take(outbox_);
    EXPECT_EQ(message.step_report().epoch(), 7);
    EXPECT_EQ(message.step_report().metrics().step(), step);
    EXPECT_EQ(message.step_report().metrics().loss(), 1.0 / step);
    EXPECT_GT(message.step_report().metrics().elapsed_seconds(), 0);
  }
  message = Take(outbox_);
  EXPECT_EQ(message.finished().code(), kOk);
  EXPECT_EQ(message.finished().message(), "");
  EXPECT_EQ(message.finished().step(), 3);
  EXPECT_EQ(message.finished().figures().device_bytes(), 0);
  EXPECT_GT(message.finished().figures().threads(), 0);
}

TEST_F(JobSessionTest, FinishedComesAfterEverythingIsGivenBack) {
  // A rank says it is gone only at the end of its destructor.
  Begin(TinyPrepare());
  Start();
  TakeFinished();
  EXPECT_EQ(ranks_.alive(), 0);
}

TEST_F(JobSessionTest, StopMidStepCancelsAndSaysWhy) {
  Notification in_step;
  ranks_.on_step = [&](int64_t step) {
    if (step == 1) return absl::OkStatus();
    in_step.Notify();
    return ranks_.BlockUntilCancelled();
  };
  Begin(TinyPrepare());
  Start();
  in_step.WaitForNotification();
  session_->OnStop(StopOf(prepare_, "rank 0 was lost"));
  const Finished finished = TakeFinished();
  EXPECT_EQ(finished.code(), kCancelled);
  EXPECT_THAT(finished.message(),
              AllOf(HasSubstr("rank 1"), HasSubstr("rank 0 was lost")));
  EXPECT_EQ(finished.step(), 1);
}

TEST_F(JobSessionTest, StopMidConnectCancels) {
  Notification in_connect;
  ranks_.on_connect = [&] {
    in_connect.Notify();
    return ranks_.BlockUntilCancelled();
  };
  Begin(TinyPrepare());
  Take(outbox_);
  session_->OnRendezvousComplete(AllAddresses(prepare_));
  in_connect.WaitForNotification();
  session_->OnStop(StopOf(prepare_, "enough"));
  EXPECT_EQ(TakeFinished().code(), kCancelled);
}

TEST_F(JobSessionTest, StopWhileOpeningCancels) {
  Notification in_open;
  ranks_.on_open = [&] {
    in_open.Notify();
    return ranks_.BlockUntilCancelled();
  };
  Begin(TinyPrepare());
  in_open.WaitForNotification();
  session_->OnStop(StopOf(prepare_, "enough"));
  EXPECT_EQ(TakeFinished().code(), kCancelled);
}

TEST_F(JobSessionTest, StopWhileWaitingForTheCoordinatorEndsTheJob) {
  Begin(TinyPrepare());
  Take(outbox_);
  session_->OnStop(StopOf(prepare_, "in rendezvous"));
  EXPECT_THAT(TakeFinished().message(), HasSubstr("in rendezvous"));
  runner_.join();

  Begin(TinyPrepare());
  GetReady();
  session_->OnStop(StopOf(prepare_, "in ready"));
  EXPECT_THAT(TakeFinished().message(), HasSubstr("in ready"));
}

TEST_F(JobSessionTest, StopBeforeTheRunnerBeginsMakesNoRank) {
  outbox_.Open();
  prepare_ = TinyPrepare();
  JobSession::Options options;
  options.prepare = prepare_;
  options.ranks = &ranks_;
  options.outbox = &outbox_;
  options.clock = &RealClock();
  options.device_bytes = &device_bytes_;
  session_ = std::make_unique<JobSession>(std::move(options));
  session_->OnStop(StopOf(prepare_, "at once"));
  session_->Run();
  EXPECT_EQ(TakeFinished().code(), kCancelled);
  EXPECT_EQ(ranks_.created(), 0);
}

TEST_F(JobSessionTest, FirstReasonToStopCounts) {
  ranks_.on_step = [&](int64_t) { return ranks_.BlockUntilCancelled(); };
  Begin(TinyPrepare());
  Start();
  session_->OnStop(StopOf(prepare_, "first"));
  session_->Stop(absl::UnavailableError("second"));
  EXPECT_THAT(TakeFinished().message(), HasSubstr("first"));
}

TEST_F(JobSessionTest, EngineErrorEndsTheJobWithItsCodeAndRank) {
  ranks_.on_step = [](int64_t step) {
    return step < 2 ? absl::OkStatus()
                    : absl::DataLossError(
                          "step 2: load microbatch 0: token "
                          "300 is outside the vocabulary");
  };
  Begin(TinyPrepare());
  Start();
  const Finished finished = TakeFinished();
  EXPECT_EQ(finished.code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_EQ(finished.message(),
            "rank 1: step 2: load microbatch 0: token 300 is outside the "
            "vocabulary");
  EXPECT_EQ(finished.step(), 1);
}

TEST_F(JobSessionTest, MemoryBeyondThePlanEndsTheJob) {
  ranks_.live_set_excess_bytes = 4096;
  Begin(TinyPrepare());
  Start();
  const Finished finished = TakeFinished();
  EXPECT_EQ(finished.code(), static_cast<int>(absl::StatusCode::kInternal));
  EXPECT_THAT(finished.message(),
              AllOf(HasSubstr("step 1"), HasSubstr("4096 bytes")));
}

TEST_F(JobSessionTest, MemoryBeyondThePlanInAValidationEndsTheJob) {
  worker::v1::Prepare prepare = TinyPrepare();
  prepare.mutable_job()->mutable_eval()->set_batches(1);
  ranks_.on_eval = [this] {
    ranks_.live_set_excess_bytes = 4096;
    return absl::OkStatus();
  };
  Begin(prepare);
  Start();
  const Finished finished = TakeFinished();
  EXPECT_EQ(finished.code(), static_cast<int>(absl::StatusCode::kInternal));
  EXPECT_THAT(finished.message(), AllOf(HasSubstr("validation after step 3"),
                                        HasSubstr("4096 bytes")));
}

TEST_F(JobSessionTest, ErrorWhileOpeningEndsTheJob) {
  ranks_.on_open = [] { return absl::NotFoundError("no dataset"); };
  Begin(TinyPrepare());
  EXPECT_EQ(TakeFinished().message(), "rank 1: no dataset");
}

TEST_F(JobSessionTest, MessagesOfAnotherEpochOrJobAreIgnored) {
  Begin(TinyPrepare());
  EXPECT_TRUE(Take(outbox_).has_rendezvous());
  worker::v1::Prepare other = prepare_;
  other.set_epoch(6);
  session_->OnRendezvousComplete(AllAddresses(other));
  session_->OnStop(StopOf(other, "stale"));
  other = prepare_;
  other.set_job_id("tiny-0");
  session_->OnRendezvousComplete(AllAddresses(other));
  session_->OnStop(StopOf(other, "stale"));
  // Nor does a Start before its time count.
  session_->OnStart(StartOf(prepare_));
  EXPECT_EQ(session_->state(), SessionState::kRendezvous);

  session_->OnRendezvousComplete(AllAddresses(prepare_));
  EXPECT_TRUE(Take(outbox_).has_prepared());
  session_->OnStart(StartOf(prepare_));
  EXPECT_EQ(TakeFinished().code(), kOk);
}

TEST_F(JobSessionTest, AddressesThatDoNotMakeAWorldAreRefused) {
  using Damage = void (*)(worker::v1::RendezvousComplete*);
  const std::pair<Damage, const char*> cases[] = {
      {[](auto* m) { m->mutable_ranks()->RemoveLast(); },
       "addresses of 1 rank"},
      {[](auto* m) { m->mutable_ranks(0)->set_epoch(6); }, "epoch 6"},
      {[](auto* m) { m->mutable_ranks(0)->set_rank(0); }, "rank 0"},
      {[](auto* m) { m->mutable_ranks(0)->set_rank(2); }, "rank 2"},
      {[](auto* m) { m->mutable_ranks(0)->clear_addresses(); }, "rank 1"},
  };
  for (const auto& [damage, expected] : cases) {
    Begin(TinyPrepare());
    EXPECT_TRUE(Take(outbox_).has_rendezvous());
    worker::v1::RendezvousComplete message = AllAddresses(prepare_);
    damage(&message);
    session_->OnRendezvousComplete(message);
    const Finished finished = TakeFinished();
    EXPECT_EQ(finished.code(),
              static_cast<int>(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(finished.message(), HasSubstr(expected));
    runner_.join();
  }
}

TEST_F(JobSessionTest, SlowCoordinatorHoldsTheJobBackButNotAStop) {
  Outbox small(/*capacity=*/1);
  small.Open();
  prepare_ = TinyPrepare();
  JobSession::Options options;
  options.prepare = prepare_;
  options.ranks = &ranks_;
  options.outbox = &small;
  options.clock = &RealClock();
  options.device_bytes = &device_bytes_;
  session_ = std::make_unique<JobSession>(std::move(options));
  Notification second_step;
  ranks_.on_step = [&](int64_t step) {
    if (step == 2) second_step.Notify();
    EXPECT_LT(step, 3) << "ran ahead of a full outbox";
    return absl::OkStatus();
  };
  runner_ = std::thread([this] { session_->Run(); });
  EXPECT_TRUE(Take(small).has_rendezvous());
  session_->OnRendezvousComplete(AllAddresses(prepare_));
  EXPECT_TRUE(Take(small).has_prepared());
  session_->OnStart(StartOf(prepare_));
  second_step.WaitForNotification();
  session_->OnStop(StopOf(prepare_, "enough"));
  EXPECT_EQ(TakeFinished(small).code(), kCancelled);
}

}  // namespace
}  // namespace weft::service
