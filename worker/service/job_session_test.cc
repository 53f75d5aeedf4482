#include "worker/service/job_session.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/service/fake_rank.h"
#include "worker/service/session_testutil.h"

namespace weft::service {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::worker::v1::AttachRequest;
using ::weft::worker::v1::Finished;

constexpr int kOk = 0;
constexpr int kCancelled = 1;

// Runs a session on a thread of its own, as a daemon would.
class JobSessionTest : public testing::Test {
 protected:
  void Begin(worker::v1::Prepare prepare) {
    prepare_ = std::move(prepare);
    outbox_.Open();
    JobSession::Options options;
    options.prepare = prepare_;
    options.ranks = &ranks_;
    options.outbox = &outbox_;
    options.clock = &RealClock();
    options.device_bytes = &device_bytes_;
    session_ = std::make_unique<JobSession>(std::move(options));
    runner_ = std::thread([this] { session_->Run(); });
  }

  // Takes the session to READY, or to RUNNING.
  void GetReady() {
    EXPECT_TRUE(Take(outbox_).has_rendezvous());
    session_->OnRendezvousComplete(AllAddresses(prepare_));
    EXPECT_TRUE(Take(outbox_).has_prepared());
  }
  void Start() {
    GetReady();
    session_->OnStart(StartOf(prepare_));
  }

  // Takes what comes until Finished.
  Finished TakeFinished() { return TakeFinished(outbox_); }
  static Finished TakeFinished(Outbox& outbox) {
    while (true) {
      AttachRequest message = Take(outbox);
      if (message.has_finished()) return message.finished();
      if (message.message_case() == AttachRequest::MESSAGE_NOT_SET) {
        ADD_FAILURE() << "no Finished came";
        return Finished();
      }
    }
  }

  void TearDown() override {
    if (runner_.joinable()) runner_.join();
    EXPECT_EQ(ranks_.alive(), 0);
    EXPECT_EQ(device_bytes_.load(), 0);
    if (session_ != nullptr) {
      EXPECT_EQ(session_->state(), SessionState::kFinished);
    }
  }

  FakeRankFactory ranks_;
  Outbox outbox_;
  std::atomic<int64_t> device_bytes_{0};
  worker::v1::Prepare prepare_;
  std::unique_ptr<JobSession> session_;
  std::thread runner_;
};

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
