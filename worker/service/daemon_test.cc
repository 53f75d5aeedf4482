#include "worker/service/daemon.h"

#include <thread>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "worker/service/fake_rank.h"
#include "worker/service/process_figures.h"
#include "worker/service/session_testutil.h"

namespace weft::service {
namespace {

using ::testing::HasSubstr;
using ::weft::worker::v1::AttachRequest;
using ::weft::worker::v1::AttachResponse;

// A daemon with a fake engine, and a box that a test reads in place of a
// stream.
class DaemonTest : public testing::Test {
 protected:
  DaemonTest() : daemon_(OptionsOf()) {
    outbox_.Open();
    runner_ = std::thread([this] { daemon_.RunJobs(); });
  }
  ~DaemonTest() override {
    daemon_.Shutdown(absl::UnavailableError("the test has ended"));
    runner_.join();
    EXPECT_EQ(ranks_.alive(), 0);
    EXPECT_EQ(device_bytes_.load(), 0);
  }

  Daemon::Options OptionsOf() {
    Daemon::Options options;
    options.ranks = &ranks_;
    options.outbox = &outbox_;
    options.clock = &RealClock();
    options.device_bytes = &device_bytes_;
    return options;
  }

  worker::v1::Prepare Job(int number) {
    worker::v1::Prepare prepare = TinyPrepare();
    prepare.set_job_id(absl::StrCat("tiny-", number));
    prepare.set_epoch(number);
    return prepare;
  }

  void Say(const worker::v1::Prepare& prepare) {
    AttachResponse message;
    *message.mutable_prepare() = prepare;
    daemon_.OnMessage(message);
  }
  void SayAddresses(const worker::v1::Prepare& prepare) {
    AttachResponse message;
    *message.mutable_rendezvous_complete() = AllAddresses(prepare);
    daemon_.OnMessage(message);
  }
  void SayStart(const worker::v1::Prepare& prepare) {
    AttachResponse message;
    *message.mutable_start() = StartOf(prepare);
    daemon_.OnMessage(message);
  }
  void SayStop(const worker::v1::Prepare& prepare) {
    AttachResponse message;
    *message.mutable_stop() = StopOf(prepare, "enough");
    daemon_.OnMessage(message);
  }

  void StartJob(const worker::v1::Prepare& prepare) {
    Say(prepare);
    EXPECT_EQ(Take(outbox_).rendezvous().job_id(), prepare.job_id());
    SayAddresses(prepare);
    EXPECT_TRUE(Take(outbox_).has_prepared());
    SayStart(prepare);
  }
  worker::v1::Finished TakeFinished() {
    AttachRequest message;
    do {
      message = Take(outbox_);
    } while (message.has_step_report());
    EXPECT_TRUE(message.has_finished());
    return message.finished();
  }

  FakeRankFactory ranks_;
  Outbox outbox_;
  std::atomic<int64_t> device_bytes_{0};
  Daemon daemon_;
  std::thread runner_;
};

TEST_F(DaemonTest, TakesJobAfterJobAtOnceAndLeavesNoThread) {
  const int threads = ReadProcessFigures(0).threads();
  for (int number = 1; number <= 20; ++number) {
    StartJob(Job(number));
    const worker::v1::Finished finished = TakeFinished();
    EXPECT_EQ(finished.job_id(), absl::StrCat("tiny-", number));
    EXPECT_EQ(finished.code(), 0) << finished.message();
    EXPECT_EQ(finished.figures().threads(), threads);
  }
  EXPECT_EQ(ranks_.created(), 20);
}

TEST_F(DaemonTest, IsReadyWhileADeviceIsStuck) {
  daemon_.OnAttached("w-1");
  ranks_.on_step = [&](int64_t) { return ranks_.BlockUntilCancelled(); };
  StartJob(Job(1));
  EXPECT_OK(daemon_.Readiness());
  SayStop(Job(1));
  TakeFinished();
}

// A probe asks while the thread that reads the stream stops a job.
TEST_F(DaemonTest, SaysWhetherItIsReadyWhileAStopHangs) {
  daemon_.OnAttached("w-1");
  Notification in_cancel;
  Notification go_on;
  ranks_.on_cancel = [&] {
    in_cancel.Notify();
    go_on.WaitForNotification();
  };
  ranks_.on_step = [&](int64_t) { return ranks_.BlockUntilCancelled(); };
  StartJob(Job(1));
  std::thread reader([&] { SayStop(Job(1)); });
  in_cancel.WaitForNotification();
  Notification answered;
  std::thread probe([&] {
    EXPECT_OK(daemon_.Readiness());
    answered.Notify();
  });
  EXPECT_TRUE(answered.WaitForNotificationWithTimeout(absl::Seconds(30)));
  go_on.Notify();
  reader.join();
  probe.join();
  TakeFinished();
}

TEST_F(DaemonTest, RefusesASecondJobWhileOneRuns) {
  ranks_.on_step = [&](int64_t) { return ranks_.BlockUntilCancelled(); };
  StartJob(Job(1));
  Say(Job(2));
  const worker::v1::Finished refused = Take(outbox_).finished();
  EXPECT_EQ(refused.job_id(), "tiny-2");
  EXPECT_EQ(refused.code(),
            static_cast<int>(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(refused.message(), HasSubstr("busy with job tiny-1"));
  SayStop(Job(1));
  EXPECT_EQ(TakeFinished().job_id(), "tiny-1");
}

TEST_F(DaemonTest, TellsWhoItIsAndWhatItDoes) {
  EXPECT_THAT(daemon_.Status(), HasSubstr("starting"));
  daemon_.OnAttached("w-1");
  EXPECT_EQ(daemon_.Status(), "worker w-1\nstate  idle\n");
  Notification in_step;
  ranks_.on_step = [&](int64_t step) {
    if (step == 1) return absl::OkStatus();
    in_step.Notify();
    return ranks_.BlockUntilCancelled();
  };
  StartJob(Job(1));
  in_step.WaitForNotification();
  EXPECT_EQ(daemon_.Status(),
            "worker w-1\nstate  busy\njob    tiny-1, RUNNING\n"
            "rank   1 of 2\nstep   1 of 3\n");
  const nlohmann::json status = nlohmann::json::parse(
      daemon_.StatusJson(), nullptr, /*allow_exceptions=*/false);
  EXPECT_EQ(status, nlohmann::json::parse(R"({
    "worker_id": "w-1", "state": "busy",
    "job": {"id": "tiny-1", "state": "RUNNING", "rank": 1, "world": 2,
            "step": 1, "steps": 3}})"))
      << status;
  SayStop(Job(1));
  EXPECT_EQ(TakeFinished().job_id(), "tiny-1");
  daemon_.OnDetached(absl::UnavailableError("gone"));
  EXPECT_EQ(daemon_.Status(), "worker w-1\nstate  detached\n");
}

TEST_F(DaemonTest, IsReadyWhileItIsAttachedAndNotStopping) {
  EXPECT_THAT(daemon_.Readiness(), StatusIs(absl::StatusCode::kUnavailable,
                                            HasSubstr("not attached")));
  daemon_.OnAttached("w-1");
  EXPECT_OK(daemon_.Readiness());
  daemon_.OnDetached(absl::UnavailableError("gone"));
  EXPECT_THAT(daemon_.Readiness(), StatusIs(absl::StatusCode::kUnavailable,
                                            HasSubstr("not attached")));
  daemon_.OnAttached("w-1");
  daemon_.Shutdown(absl::UnavailableError("enough"));
  EXPECT_THAT(daemon_.Readiness(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("enough")));
  EXPECT_THAT(daemon_.StatusJson(), HasSubstr("\"stopping\""));
}

TEST_F(DaemonTest, StopRightAfterPrepareIsNotLost) {
  for (int number = 1; number <= 20; ++number) {
    Say(Job(number));
    SayStop(Job(number));
    AttachRequest message = Take(outbox_);
    if (message.has_rendezvous()) message = Take(outbox_);
    EXPECT_EQ(message.finished().code(), 1);
    EXPECT_EQ(message.finished().epoch(), number);
  }
}

TEST_F(DaemonTest, MessagesForNoJobAreIgnored) {
  SayStart(Job(9));
  SayStop(Job(9));
  SayAddresses(Job(9));
  daemon_.OnMessage(AttachResponse());
  StartJob(Job(1));
  SayStop(Job(9));
  EXPECT_EQ(TakeFinished().code(), 0);
}

TEST_F(DaemonTest, LossOfTheCoordinatorEndsTheJobBeforeTheNextAttachment) {
  Notification in_step;
  ranks_.on_step = [&](int64_t) {
    in_step.Notify();
    return ranks_.BlockUntilCancelled();
  };
  StartJob(Job(1));
  in_step.WaitForNotification();
  outbox_.Close();
  daemon_.OnDetached(absl::UnavailableError("the coordinator is gone"));
  EXPECT_EQ(ranks_.alive(), 0);
  // What the old job says does not reach the new stream.
  outbox_.Open();
  ranks_.on_step = [](int64_t) { return absl::OkStatus(); };
  StartJob(Job(2));
  EXPECT_EQ(TakeFinished().job_id(), "tiny-2");
}

TEST_F(DaemonTest, DetachingWithoutAJobReturnsAtOnce) {
  daemon_.OnDetached(absl::UnavailableError("gone"));
}

TEST_F(DaemonTest, ShutdownStopsTheJobAndRefusesOthers) {
  Notification in_step;
  ranks_.on_step = [&](int64_t) {
    in_step.Notify();
    return ranks_.BlockUntilCancelled();
  };
  StartJob(Job(1));
  in_step.WaitForNotification();
  daemon_.Shutdown(absl::UnavailableError("the worker shuts down"));
  const worker::v1::Finished finished = TakeFinished();
  EXPECT_EQ(finished.code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_EQ(finished.message(), "rank 1: the worker shuts down");
  Say(Job(2));
  EXPECT_EQ(Take(outbox_).finished().message(),
            "rank 1: the worker shuts down");
}

}  // namespace
}  // namespace weft::service
