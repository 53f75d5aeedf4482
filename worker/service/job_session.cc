#include "worker/service/job_session.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "worker/service/process_figures.h"

namespace weft::service {
namespace {

using ::weft::worker::v1::AttachRequest;

absl::Status CreateFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "cannot create folder ", path, ": ", error.message(),
      "; the worker needs to write to the coordinator's artifacts folder"));
}

// Orders the addresses by rank. INVALID_ARGUMENT unless every rank of `epoch`
// is there once.
absl::StatusOr<std::vector<Addresses>> ByRank(
    const worker::v1::RendezvousComplete& message, int world) {
  std::vector<Addresses> ranks(world);
  if (message.ranks_size() != world) {
    return absl::InvalidArgumentError(
        absl::StrCat("addresses of ", message.ranks_size(),
                     " ranks came for a world of ", world));
  }
  for (const worker::v1::Rendezvous& entry : message.ranks()) {
    if (entry.epoch() != message.epoch()) {
      return absl::InvalidArgumentError(
          absl::StrCat("addresses of rank ", entry.rank(), " are of epoch ",
                       entry.epoch(), ", not ", message.epoch()));
    }
    if (entry.rank() < 0 || entry.rank() >= world ||
        !ranks[entry.rank()].empty() || entry.addresses().empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "addresses of rank ", entry.rank(),
          " are empty, came twice or are out of a world of ", world));
    }
    ranks[entry.rank()] = {entry.addresses().begin(), entry.addresses().end()};
  }
  return ranks;
}

absl::Status CheckLiveSet(const exec::Engine& engine) {
  const int64_t excess = engine.live_set_excess_bytes();
  if (excess <= 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("resident device memory exceeds the plan's live set by ",
                   excess, " bytes"));
}

}  // namespace

JobSession::JobSession(Options options) : options_(std::move(options)) {}

void JobSession::Run() {
  LOG(INFO) << LogPrefix() << " preparing world=" << world()
            << " epoch=" << epoch();
  absl::Status outcome = Drive();
  Finish(OrStopped(std::move(outcome)));
}

absl::Status JobSession::Drive() {
  RETURN_IF_ERROR(OrStopped(absl::OkStatus()));
  RETURN_IF_ERROR(CreateFolder(prepare().artifacts()));
  parts_ = options_.ranks->Create(prepare());
  {
    MutexLock lock(&mu_);
    cancellable_ = parts_.get();
    // A Stop that came before there was something to cancel.
    if (!stop_.ok()) return stop_;
  }
  RETURN_IF_ERROR(Rendezvous());
  RETURN_IF_ERROR(GetReady());
  RETURN_IF_ERROR(AwaitStart());
  RETURN_IF_ERROR(RunSteps());
  RETURN_IF_ERROR(
      Annotate(parts_->engine().FinishRouting(), "writing routing"));
  return WriteParameters();
}

absl::Status JobSession::Rendezvous() {
  ASSIGN_OR_RETURN(Addresses own, parts_->Open());
  MoveTo(SessionState::kRendezvous);
  AttachRequest message;
  worker::v1::Rendezvous& rendezvous = *message.mutable_rendezvous();
  rendezvous.set_job_id(job_id());
  rendezvous.set_epoch(epoch());
  rendezvous.set_rank(rank());
  for (std::string& address : own) {
    rendezvous.add_addresses(std::move(address));
  }
  options_.outbox->Send(std::move(message));
  ASSIGN_OR_RETURN(std::vector<Addresses> all, AwaitAddresses());
  return Annotate(parts_->Connect(all), "getting ready");
}

// Waits without a deadline, as AwaitStart() does: the coordinator knows who is
// late, and sends Stop; its own loss stops the session too.
absl::StatusOr<std::vector<Addresses>> JobSession::AwaitAddresses() {
  MutexLock lock(&mu_);
  while (!addresses_.has_value() && stop_.ok()) changed_.Wait(&mu_);
  if (!stop_.ok()) return stop_;
  return ByRank(*addresses_, world());
}

absl::Status JobSession::GetReady() {
  UpdateDeviceBytes();
  RETURN_IF_ERROR(OpenTelemetry());
  MoveTo(SessionState::kReady);
  const exec::Engine& engine = parts_->engine();
  AttachRequest message;
  worker::v1::Prepared& prepared = *message.mutable_prepared();
  prepared.set_job_id(job_id());
  prepared.set_epoch(epoch());
  prepared.set_collective_hash(engine.collective_hash());
  prepared.set_assignment_hash(engine.assignment_hash());
  prepared.set_device_bytes(options_.device_bytes->load());
  prepared.set_main_weight_bytes(engine.main_weight_bytes());
  options_.outbox->Send(std::move(message));
  return absl::OkStatus();
}

absl::Status JobSession::OpenTelemetry() {
  telemetry::JobLabels labels;
  labels.job_id = job_id();
  labels.name = prepare().job().name();
  labels.rank = rank();
  labels.world = world();
  labels.ep = prepare().binding().ep();
  ASSIGN_OR_RETURN(
      telemetry_, telemetry::JobTelemetry::Create(labels, prepare().artifacts(),
                                                  options_.metrics));
  return absl::OkStatus();
}

absl::Status JobSession::AwaitStart() {
  {
    MutexLock lock(&mu_);
    while (!is_started_ && stop_.ok()) changed_.Wait(&mu_);
    if (!stop_.ok()) return stop_;
  }
  MoveTo(SessionState::kRunning);
  return absl::OkStatus();
}

absl::Status JobSession::RunSteps() {
  const v1::TrainingJob& job = prepare().job();
  const int64_t every = job.eval().every_steps();
  first_step_begin_ns_ = options_.clock->MonotonicNanos();
  exec::StepResult result;
  for (int64_t step = 1; step <= job.steps(); ++step) {
    RETURN_IF_ERROR(OrStopped(absl::OkStatus()));
    RETURN_IF_ERROR(RunStep(step, &result));
    RETURN_IF_ERROR(WriteOutputs(step, result));
    const bool due = step == job.steps() || (every > 0 && step % every == 0);
    if (due && job.eval().batches() > 0) {
      RETURN_IF_ERROR(Validate(step));
    }
  }
  return absl::OkStatus();
}

absl::Status JobSession::RunStep(int64_t step, exec::StepResult* result) {
  exec::Engine& engine = parts_->engine();
  RETURN_IF_ERROR(engine.RunStep(step, /*control_word=*/0, result));
  RETURN_IF_ERROR(Annotate(CheckLiveSet(engine), absl::StrCat("step ", step)));
  last_step_ = step;
  result->metrics.set_step(step);
  result->metrics.set_elapsed_seconds(
      (options_.clock->MonotonicNanos() - first_step_begin_ns_) * 1e-9);
  VLOG(1) << LogPrefix() << " step=" << step
          << " loss=" << result->metrics.loss()
          << " seconds=" << result->metrics.step_seconds();
  UpdateDeviceBytes();
  telemetry_->RecordStep(result->metrics, parts_->device_bytes());
  AttachRequest message;
  worker::v1::StepReport& report = *message.mutable_step_report();
  report.set_job_id(job_id());
  report.set_epoch(epoch());
  *report.mutable_metrics() = result->metrics;
  Send(std::move(message));
  return absl::OkStatus();
}

absl::Status JobSession::Validate(int64_t step) {
  ASSIGN_OR_RETURN(v1::EvalMetrics metrics,
                   parts_->engine().RunEval(prepare().job().eval().batches()),
                   _ << "validation after step " << step);
  RETURN_IF_ERROR(Annotate(CheckLiveSet(parts_->engine()),
                           absl::StrCat("validation after step ", step)));
  metrics.set_step(step);
  telemetry_->RecordEval(metrics);
  if (rank() != 0) return absl::OkStatus();
  AttachRequest message;
  worker::v1::EvalReport& report = *message.mutable_eval_report();
  report.set_job_id(job_id());
  report.set_epoch(epoch());
  *report.mutable_metrics() = std::move(metrics);
  Send(std::move(message));
  return absl::OkStatus();
}

absl::Status JobSession::WriteOutputs(int64_t step,
                                      const exec::StepResult& result) {
  const v1::OutputConfig& output = prepare().job().output();
  if (step == output.trace_step()) RETURN_IF_ERROR(WriteTrace(step, result));
  if (step == output.gradients_step()) RETURN_IF_ERROR(WriteGradients());
  if (step == output.tap_step()) RETURN_IF_ERROR(WriteTaps());
  if (output.routing()) RETURN_IF_ERROR(WriteRouting());
  return absl::OkStatus();
}

absl::Status JobSession::WriteTrace(int64_t step,
                                    const exec::StepResult& result) {
  const std::string path = absl::StrCat(prepare().artifacts(), "/trace.step-",
                                        step, ".rank-", rank(), ".json");
  return Annotate(parts_->engine().WriteTrace(result, path),
                  absl::StrCat("writing ", path));
}

absl::Status JobSession::WriteGradients() {
  const std::string folder = absl::StrCat(prepare().artifacts(), "/gradients");
  RETURN_IF_ERROR(CreateFolder(folder));
  return Annotate(parts_->engine().WriteGradients(folder),
                  absl::StrCat("writing gradients to ", folder));
}

absl::Status JobSession::WriteTaps() {
  const std::string folder = absl::StrCat(prepare().artifacts(), "/taps");
  RETURN_IF_ERROR(CreateFolder(folder));
  return Annotate(parts_->engine().WriteTaps(folder),
                  absl::StrCat("writing taps to ", folder));
}

absl::Status JobSession::WriteRouting() {
  const std::string folder = absl::StrCat(prepare().artifacts(), "/routing");
  RETURN_IF_ERROR(CreateFolder(folder));
  return Annotate(parts_->engine().WriteRouting(folder),
                  absl::StrCat("writing routing to ", folder));
}

absl::Status JobSession::WriteParameters() {
  if (!prepare().job().output().final_parameters()) return absl::OkStatus();
  const std::string folder = absl::StrCat(prepare().artifacts(), "/parameters");
  RETURN_IF_ERROR(CreateFolder(folder));
  return Annotate(parts_->engine().WriteParameters(folder),
                  absl::StrCat("writing parameters to ", folder));
}

void JobSession::Finish(absl::Status outcome) {
  MoveTo(SessionState::kStopping);
  {
    MutexLock lock(&mu_);
    cancellable_ = nullptr;
  }
  telemetry_.reset();
  parts_.reset();
  options_.device_bytes->store(0);
  ReturnFreeMemory();

  AttachRequest message;
  worker::v1::Finished& finished = *message.mutable_finished();
  finished.set_job_id(job_id());
  finished.set_epoch(epoch());
  finished.set_code(static_cast<int32_t>(outcome.code()));
  if (!outcome.ok()) {
    finished.set_message(
        absl::StrCat("rank ", rank(), ": ", outcome.message()));
  }
  finished.set_step(last_step_);
  *finished.mutable_figures() = ReadProcessFigures(0);
  if (outcome.ok() || absl::IsCancelled(outcome)) {
    LOG(INFO) << LogPrefix() << " finished step=" << last_step_
              << " outcome=" << LogValue(outcome.ToString());
  } else {
    LOG(ERROR) << LogPrefix() << " failed step=" << last_step_
               << " error=" << LogValue(outcome.ToString());
  }
  // First: the coordinator may answer Finished with the next Prepare.
  MoveTo(SessionState::kFinished);
  options_.outbox->Send(std::move(message));
}

void JobSession::OnRendezvousComplete(
    const worker::v1::RendezvousComplete& message) {
  MutexLock lock(&mu_);
  if (!IsForLocked("RendezvousComplete", message.job_id(), message.epoch(),
                   SessionState::kRendezvous)) {
    return;
  }
  addresses_ = message;
  changed_.SignalAll();
}

void JobSession::OnStart(const worker::v1::Start& message) {
  MutexLock lock(&mu_);
  if (!IsForLocked("Start", message.job_id(), message.epoch(),
                   SessionState::kReady)) {
    return;
  }
  is_started_ = true;
  changed_.SignalAll();
}

void JobSession::OnStop(const worker::v1::Stop& message) {
  {
    MutexLock lock(&mu_);
    if (!IsForLocked("Stop", message.job_id(), message.epoch(), state_)) return;
  }
  Stop(absl::CancelledError(absl::StrCat("stopped: ", message.reason())));
}

void JobSession::Stop(absl::Status why) {
  MutexLock lock(&mu_);
  if (state_ == SessionState::kStopping || state_ == SessionState::kFinished ||
      !stop_.ok()) {
    return;
  }
  LOG(INFO) << LogPrefix() << " stopping in " << Name(state_)
            << " reason=" << LogValue(why.message());
  stop_ = std::move(why);
  if (cancellable_ != nullptr) cancellable_->Cancel(stop_);
  changed_.SignalAll();
}

SessionState JobSession::state() const {
  MutexLock lock(&mu_);
  return state_;
}

std::string JobSession::Status() const {
  return absl::StrCat("job    ", job_id(), ", ", Name(state()), "\nrank   ",
                      rank(), " of ", world(), "\nstep   ", last_step_.load(),
                      " of ", prepare().job().steps(), "\n");
}

google::protobuf::Struct JobSession::StatusFields() const {
  google::protobuf::Struct status;
  auto& fields = *status.mutable_fields();
  fields["id"].set_string_value(job_id());
  fields["state"].set_string_value(Name(state()));
  fields["rank"].set_number_value(rank());
  fields["world"].set_number_value(world());
  fields["step"].set_number_value(last_step_.load());
  fields["steps"].set_number_value(prepare().job().steps());
  return status;
}

void JobSession::Send(AttachRequest message) {
  while (!options_.outbox->WaitForRoom(absl::Milliseconds(100))) {
    if (IsStopped()) return;
  }
  options_.outbox->Send(std::move(message));
}

void JobSession::MoveTo(SessionState next) {
  MutexLock lock(&mu_);
  const absl::Status legal = CheckTransition(state_, next);
  CHECK(legal.ok()) << LogPrefix() << " " << legal;
  state_ = next;
}

bool JobSession::IsForLocked(const char* message, const std::string& job_id,
                             int64_t epoch, SessionState expected) const {
  if (job_id == this->job_id() && epoch == this->epoch() &&
      state_ == expected) {
    return true;
  }
  LOG(WARNING) << LogPrefix() << " epoch=" << this->epoch() << " in "
               << Name(state_) << " ignored " << message << " of job=" << job_id
               << " epoch=" << epoch;
  return false;
}

absl::Status JobSession::OrStopped(absl::Status status) const {
  MutexLock lock(&mu_);
  return stop_.ok() ? status : stop_;
}

bool JobSession::IsStopped() const {
  MutexLock lock(&mu_);
  return !stop_.ok();
}

void JobSession::UpdateDeviceBytes() {
  int64_t bytes = 0;
  for (int64_t category : parts_->device_bytes()) bytes += category;
  options_.device_bytes->store(bytes);
}

std::string JobSession::LogPrefix() const {
  return absl::StrCat("job=", job_id(), " rank=", rank());
}

}  // namespace weft::service
