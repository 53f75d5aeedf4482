// Stand-ins for what the coordinator's core talks to.
#ifndef WEFT_COORDINATOR_CORE_TEST_FAKES_H_
#define WEFT_COORDINATOR_CORE_TEST_FAKES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "coordinator/core/dispatcher.h"
#include "coordinator/core/job_observer.h"
#include "coordinator/core/plan_compiler.h"
#include "coordinator/core/worker_link.h"
#include "weft/v1/job.pb.h"
#include "weft/worker/v1/worker_control_service.pb.h"

namespace weft::coordinator {

inline constexpr uint64_t kFakeUnitsHash = 77;

// Compiles every job to an empty program.
class FakePlanCompiler : public PlanCompiler {
 public:
  absl::StatusOr<CompiledPlan> Compile(
      const v1::TrainingJob& job) const override {
    if (begun != nullptr) begun->Notify();
    if (hold != nullptr) hold->WaitForNotification();
    if (!error.ok()) return error;
    CompiledPlan plan;
    plan.summary.set_ops(12);
    plan.summary.set_arena_bytes(4096);
    plan.summary.mutable_memory()->set_main_weights(1000);
    plan.summary.mutable_memory()->set_static_values(4000);
    plan.summary.mutable_memory()->set_routed_values(96);
    plan.units.set_hash(kFakeUnitsHash);
    plan.units.add_units()->set_name(std::string(unit_name_bytes, 'u'));
    if (job.eval().batches() > 0) plan.eval.emplace();
    return plan;
  }
  absl::StatusOr<PlanTexts> Describe(const v1::TrainingJob& job,
                                     int rank) const override {
    if (!error.ok()) return error;
    PlanTexts texts;
    texts.text = "plan of rank " + std::to_string(rank);
    texts.timeline = "timeline";
    texts.summary.set_ops(12);
    return texts;
  }

  absl::Status error;
  size_t unit_name_bytes = 0;     // makes plans larger
  Notification* begun = nullptr;  // told by Compile(), once
  Notification* hold = nullptr;   // what Compile() waits for
};

// Keeps what is sent. Thread-safe.
class FakeLink : public WorkerLink {
 public:
  void Send(worker::v1::AttachResponse message) override {
    MutexLock lock(&mu_);
    sent_.push_back(std::move(message));
  }
  void Close(absl::Status reason) override {
    MutexLock lock(&mu_);
    if (!closed_.has_value()) closed_ = std::move(reason);
  }

  // What was sent since the last call.
  std::vector<worker::v1::AttachResponse> Take() {
    MutexLock lock(&mu_);
    return std::exchange(sent_, {});
  }
  std::optional<absl::Status> closed() {
    MutexLock lock(&mu_);
    return closed_;
  }

 private:
  Mutex mu_;
  std::vector<worker::v1::AttachResponse> sent_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> closed_ ABSL_GUARDED_BY(mu_);
};

// Notes what is told of workers. Thread-safe.
class WorkerObserver : public JobObserver {
 public:
  void OnJobState(const v1::Job&) override {}
  void OnStep(const v1::Job&, const v1::StepMetrics&) override {}
  void OnEval(const v1::Job&, const v1::EvalMetrics&) override {}
  void OnJobForgotten(absl::string_view) override {}
  void OnQueue(int) override {}
  void OnWorker(const v1::Worker& worker) override {
    const bool is_lost = worker.state() == v1::WORKER_STATE_LOST;
    Note(worker.id() + (is_lost ? " is lost" : " is there"));
  }
  void OnWorkerForgotten(absl::string_view id) override {
    Note(std::string(id) + " is forgotten");
  }

  // What has been told since the last call.
  std::vector<std::string> Take() {
    MutexLock lock(&mu_);
    return std::exchange(news_, {});
  }

 private:
  void Note(std::string what) {
    MutexLock lock(&mu_);
    news_.push_back(std::move(what));
  }

  Mutex mu_;
  std::vector<std::string> news_ ABSL_GUARDED_BY(mu_);
};

// A worker as the dispatcher sees it, played by a test.
class FakeWorker {
 public:
  // Attaches; the test checks attach_status.
  FakeWorker(Dispatcher* dispatcher, const std::string& id,
             uint64_t incarnation = 1, int64_t device_memory_bytes = 0)
      : dispatcher_(*dispatcher), link_(std::make_shared<FakeLink>()) {
    worker::v1::Register info;
    info.set_worker_id(id);
    info.set_incarnation(incarnation);
    info.set_device_memory_bytes(device_memory_bytes);
    info.set_min_protocol_version(1);
    info.set_max_protocol_version(1);
    absl::StatusOr<SessionId> session = dispatcher_.Attach(info, link_);
    attach_status = session.status();
    if (session.ok()) session_ = *session;
    Read();
  }

  // Reads what came and remembers the job it is about.
  std::vector<worker::v1::AttachResponse> Read() {
    std::vector<worker::v1::AttachResponse> messages = link_->Take();
    for (const auto& message : messages) {
      if (message.has_registered()) id = message.registered().worker_id();
      if (!message.has_prepare()) continue;
      job_id = message.prepare().job_id();
      epoch = message.prepare().epoch();
      rank = message.prepare().binding().rank();
    }
    return messages;
  }

  void Heartbeat() {
    worker::v1::AttachRequest message;
    message.mutable_heartbeat()->mutable_figures()->set_threads(7);
    Say(message);
  }
  void SayRendezvous() {
    worker::v1::AttachRequest message;
    auto& rendezvous = *message.mutable_rendezvous();
    rendezvous.set_job_id(job_id);
    rendezvous.set_epoch(epoch);
    rendezvous.set_rank(rank);
    rendezvous.add_addresses("address of " + id);
    Say(message);
  }
  void SayPrepared(uint64_t collective_hash = 5,
                   uint64_t assignment_hash = kFakeUnitsHash) {
    worker::v1::AttachRequest message;
    auto& prepared = *message.mutable_prepared();
    prepared.set_job_id(job_id);
    prepared.set_epoch(epoch);
    prepared.set_collective_hash(collective_hash);
    prepared.set_assignment_hash(assignment_hash);
    Say(message);
  }
  void SayStep(int64_t step, double loss = 2.5) {
    worker::v1::AttachRequest message;
    auto& report = *message.mutable_step_report();
    report.set_job_id(job_id);
    report.set_epoch(epoch);
    report.mutable_metrics()->set_step(step);
    report.mutable_metrics()->set_loss(loss);
    report.mutable_metrics()->set_ep_seconds(rank);
    report.mutable_metrics()->set_step_seconds(1 + rank);
    report.mutable_metrics()->set_ep_wire_bytes(100);
    report.mutable_metrics()->set_tokens(64);
    Say(message);
  }
  void SayFinished(absl::StatusCode code, int64_t step,
                   const std::string& text = "") {
    worker::v1::AttachRequest message;
    auto& finished = *message.mutable_finished();
    finished.set_job_id(job_id);
    finished.set_epoch(epoch);
    finished.set_code(static_cast<int>(code));
    finished.set_message(text);
    finished.set_step(step);
    Say(message);
  }
  void Say(const worker::v1::AttachRequest& message) {
    dispatcher_.OnMessage(session_, message);
  }
  // The stream breaks, as when the process is killed.
  void Break() { dispatcher_.OnDetached(session_, "its stream broke"); }
  // The worker ends its stream, as when the process is stopped.
  void Leave() {
    dispatcher_.OnDetached(session_, "it ended its stream");
    dispatcher_.OnLeft(session_);
  }

  std::optional<absl::Status> closed() { return link_->closed(); }

  std::string id;
  absl::Status attach_status;
  std::string job_id;
  int64_t epoch = 0;
  int rank = -1;

 private:
  Dispatcher& dispatcher_;
  const std::shared_ptr<FakeLink> link_;
  SessionId session_;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_TEST_FAKES_H_
