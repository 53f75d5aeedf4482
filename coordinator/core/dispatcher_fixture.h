// A dispatcher with a fake clock, a store in memory and workers that tests
// play.
#ifndef WEFT_COORDINATOR_CORE_DISPATCHER_FIXTURE_H_
#define WEFT_COORDINATOR_CORE_DISPATCHER_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status_matchers.h"
#include "coordinator/core/dispatcher.h"
#include "coordinator/core/test_fakes.h"
#include "coordinator/store/memory_store.h"
#include "gtest/gtest.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {

class DispatcherTest : public ::testing::Test {
 protected:
  DispatcherTest() { Restart(); }

  // A new dispatcher over the same store, as after the old one was killed.
  void Restart() {
    workers_.clear();
    Dispatcher::Options options;
    options.clock = &clock_;
    options.store = &store_;
    options.compiler = &compiler_;
    options.observer = &observer_;
    options.artifacts_dir = "/artifacts";
    options.random = [this] { return next_random_++; };
    options.watch.log_size = 16;
    absl::StatusOr<std::unique_ptr<Dispatcher>> dispatcher =
        Dispatcher::Create(std::move(options));
    if (!dispatcher.ok()) {
      ADD_FAILURE() << dispatcher.status();
      std::abort();
    }
    dispatcher_ = *std::move(dispatcher);
  }

  // Adds workers "w-<n>".
  void AddWorkers(int count) {
    for (int i = 0; i < count; ++i) {
      workers_.push_back(std::make_unique<FakeWorker>(
          dispatcher_.get(), absl::StrCat("w-", workers_.size())));
    }
  }
  FakeWorker& Worker(int index) { return *workers_[index]; }
  std::vector<FakeWorker*> Workers() {
    std::vector<FakeWorker*> workers;
    for (auto& worker : workers_) workers.push_back(worker.get());
    return workers;
  }
  // The workers that play a rank of `job_id`.
  std::vector<FakeWorker*> WorkersOf(const std::string& job_id) {
    std::vector<FakeWorker*> workers;
    for (auto& worker : workers_) {
      worker->Read();
      if (worker->job_id == job_id) workers.push_back(worker.get());
    }
    return workers;
  }
  void ReadAll() {
    for (auto& worker : workers_) worker->Read();
  }

  absl::StatusOr<v1::Job> TrySubmit(const v1::TrainingJob& spec,
                                    const std::string& request_id = "") {
    v1::SubmitJobRequest request;
    request.set_request_id(request_id);
    *request.mutable_job() = spec;
    return dispatcher_->Submit(request);
  }
  // Submits a job that must be taken; returns its id.
  std::string Submit(const v1::TrainingJob& spec) {
    absl::StatusOr<v1::Job> job = TrySubmit(spec);
    if (!job.ok()) ADD_FAILURE() << job.status();
    return job.ok() ? job->id() : "";
  }
  v1::Job Get(const std::string& id) {
    absl::StatusOr<v1::Job> job = dispatcher_->Get(id);
    if (!job.ok()) ADD_FAILURE() << job.status();
    return job.ok() ? *job : v1::Job();
  }
  absl::StatusOr<v1::Job> TryCancel(const std::string& id,
                                    const std::string& reason = "") {
    v1::CancelJobRequest request;
    request.set_job_id(id);
    request.set_reason(reason);
    return dispatcher_->Cancel(request);
  }
  v1::Job Cancel(const std::string& id, const std::string& reason) {
    absl::StatusOr<v1::Job> job = TryCancel(id, reason);
    if (!job.ok()) ADD_FAILURE() << job.status();
    return job.ok() ? *job : v1::Job();
  }

  // Brings a placed job to RUNNING.
  void StartJob(const std::string& id) {
    for (FakeWorker* worker : WorkersOf(id)) worker->SayRendezvous();
    for (FakeWorker* worker : WorkersOf(id)) worker->SayPrepared();
    ReadAll();
    EXPECT_EQ(Get(id).state(), v1::JOB_STATE_RUNNING);
  }
  // All workers report the steps [first, last].
  void RunSteps(int first, int last) {
    for (int step = first; step <= last; ++step) {
      for (auto& worker : workers_) worker->SayStep(step);
    }
  }
  void FinishAll(int step) {
    for (auto& worker : workers_) {
      worker->SayFinished(absl::StatusCode::kOk, step);
    }
  }
  // Time goes on while nobody says anything.
  void Wait(absl::Duration time) {
    while (time > absl::ZeroDuration()) {
      const absl::Duration part = std::min(time, absl::Milliseconds(500));
      clock_.Advance(part);
      dispatcher_->Tick();
      time -= part;
    }
  }
  // Time goes on while all workers send heartbeats.
  void HeartbeatFor(absl::Duration time) {
    for (; time > absl::ZeroDuration(); time -= absl::Seconds(1)) {
      clock_.Advance(absl::Seconds(1));
      for (auto& worker : workers_) worker->Heartbeat();
      dispatcher_->Tick();
    }
  }

  FakeClock clock_;
  MemoryStore store_;
  FakePlanCompiler compiler_;
  WorkerObserver observer_;
  uint32_t next_random_ = 0x1000;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_DISPATCHER_FIXTURE_H_
