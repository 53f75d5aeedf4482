// A session of a job on a thread of its own, with a rank that is a fake.
#ifndef WEFT_WORKER_SERVICE_JOB_SESSION_FIXTURE_H_
#define WEFT_WORKER_SERVICE_JOB_SESSION_FIXTURE_H_

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "gtest/gtest.h"
#include "worker/service/fake_rank.h"
#include "worker/service/job_session.h"
#include "worker/service/session_testutil.h"

namespace weft::service {

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
  worker::v1::Finished TakeFinished() { return TakeFinished(outbox_); }
  static worker::v1::Finished TakeFinished(Outbox& outbox) {
    while (true) {
      const worker::v1::AttachRequest message = Take(outbox);
      if (message.has_finished()) return message.finished();
      if (message.message_case() ==
          worker::v1::AttachRequest::MESSAGE_NOT_SET) {
        ADD_FAILURE() << "no Finished came";
        return worker::v1::Finished();
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

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_JOB_SESSION_FIXTURE_H_
