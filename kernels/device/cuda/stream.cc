#include "kernels/device/cuda/stream.h"

#include <nvtx3/nvToolsExt.h>
#include <sched.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/device/cuda/launch.h"

namespace weft::device::cuda {
namespace {

CudaStream& Cast(Stream& stream) { return static_cast<CudaStream&>(stream); }

// Looks now and then instead of blocking in the driver, where no failure of
// the device would end the wait.
template <typename Query>
cudaError_t Poll(const Core& core, bool ends_on_failure, Query&& query) {
  for (;;) {
    const cudaError_t error = query();
    if (error != cudaErrorNotReady) return error;
    if (ends_on_failure && core.errors.failed()) return cudaSuccess;
    sched_yield();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaEvent>> CudaEvent::Create(
    std::shared_ptr<Core> core) {
  RETURN_IF_ERROR(core->Use());
  cudaEvent_t handle = nullptr;
  RETURN_IF_ERROR(
      ToStatus(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming),
               "creating an event"));
  return std::unique_ptr<CudaEvent>(new CudaEvent(std::move(core), handle));
}

CudaEvent::~CudaEvent() { (void)cudaEventDestroy(handle_); }

absl::Status CudaEvent::Synchronize() {
  const Counters::Wait wait(core_->counters);
  const cudaError_t error = Poll(*core_, /*ends_on_failure=*/true,
                                 [&] { return cudaEventQuery(handle_); });
  if (error != cudaSuccess) {
    core_->errors.Fail(ToStatus(error, "waiting for an event"));
  }
  return core_->errors.status();
}

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Create(
    Options options, std::shared_ptr<Core> core) {
  RETURN_IF_ERROR(core->Use());
  auto stream = std::unique_ptr<CudaStream>(
      new CudaStream(std::move(options), std::move(core)));
  RETURN_IF_ERROR(ToStatus(
      cudaStreamCreateWithPriority(&stream->handle_, cudaStreamNonBlocking,
                                   stream->options_.priority),
      absl::StrCat("creating stream ", stream->options_.name)));
  ASSIGN_OR_RETURN(
      stream->workspace_,
      AllocateDevice(stream->core_, stream->options_.workspace_bytes,
                     MemoryCategory::kStaging),
      _ << "workspace of stream " << stream->options_.name);
  return stream;
}

CudaStream::~CudaStream() {
  if (handle_ != nullptr) {
    (void)cudaStreamSynchronize(handle_);
    (void)cudaStreamDestroy(handle_);
  }
  core_->pending_timestamps -= num_pending_;
  for (const Pending& pending : timestamps_) {
    (void)cudaEventDestroy(pending.event);
  }
}

void CudaStream::Check(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return;
  core_->errors.Fail(
      Annotate(ToStatus(error, what), absl::StrCat("stream ", options_.name)));
}

void CudaStream::Launch(WorkFn fn, void* arg) {
  if (core_->errors.failed()) return;
  absl::Status status = core_->Use();
  if (status.ok()) status = fn(arg, *this);
  if (!status.ok()) core_->errors.Fail(std::move(status));
}

void CudaStream::Wait(Event& event) {
  Check(
      cudaStreamWaitEvent(handle_, static_cast<CudaEvent&>(event).handle(), 0),
      "waiting for an event");
}

void CudaStream::Record(Event& event) {
  Check(cudaEventRecord(static_cast<CudaEvent&>(event).handle(), handle_),
        "recording an event");
}

absl::Status CudaStream::Synchronize() {
  const Counters::Wait wait(core_->counters);
  Check(Poll(*core_, /*ends_on_failure=*/false,
             [&] { return cudaStreamQuery(handle_); }),
        "running");
  ResolveTimestamps();
  num_host_calls_ = 0;
  return core_->errors.status();
}

void CudaStream::Timestamp(Clock& clock, int64_t* ns) {
  Check(RecordTimestamp(clock, ns), "taking a timestamp");
}

cudaError_t CudaStream::RecordTimestamp(Clock& clock, int64_t* ns) {
  cudaError_t error = cudaSuccess;
  if (core_->pending_timestamps == 0) {
    if (core_->origin == nullptr) error = cudaEventCreate(&core_->origin);
    if (error == cudaSuccess) error = cudaEventRecord(core_->origin, handle_);
    core_->origin_ns = clock.MonotonicNanos();
  }
  if (error == cudaSuccess && num_pending_ == timestamps_.size()) {
    timestamps_.emplace_back();
    error = cudaEventCreate(&timestamps_.back().event);
  }
  if (error != cudaSuccess) return error;
  Pending& pending = timestamps_[num_pending_];
  pending.ns = ns;
  ++num_pending_;
  ++core_->pending_timestamps;
  return cudaEventRecord(pending.event, handle_);
}

void CudaStream::ResolveTimestamps() {
  for (size_t i = 0; i < num_pending_; ++i) {
    float milliseconds = 0;
    if (!core_->errors.failed()) {
      Check(cudaEventElapsedTime(&milliseconds, core_->origin,
                                 timestamps_[i].event),
            "reading a timestamp");
    }
    *timestamps_[i].ns =
        core_->origin_ns + static_cast<int64_t>(milliseconds * 1e6);
  }
  core_->pending_timestamps -= num_pending_;
  num_pending_ = 0;
}

void CudaStream::CallHost(HostFn fn, void* arg) {
  if (num_host_calls_ == host_calls_.size()) host_calls_.emplace_back();
  HostCall& call = host_calls_[num_host_calls_];
  ++num_host_calls_;
  call = {core_.get(), fn, arg};
  Check(cudaLaunchHostFunc(handle_, &RunHostCall, &call),
        "launching a function of the host");
}

void CudaStream::RunHostCall(void* call) {
  const HostCall& host = *static_cast<const HostCall*>(call);
  if (!host.core->errors.failed()) host.fn(host.arg);
}

void CudaStream::BeginRange(const char* label) { nvtxRangePushA(label); }

void CudaStream::EndRange() { nvtxRangePop(); }

absl::Status CudaStream::Poison(void* data, int64_t bytes) {
  if (core_->errors.failed()) return core_->errors.status();
  return ToStatus(cudaMemsetAsync(data, 0xFF, bytes, handle_), "poisoning");
}

void* CudaStream::workspace(int64_t bytes) const {
  return bytes <= workspace_->bytes() ? workspace_->data() : nullptr;
}

cudaStream_t Handle(Stream& stream) { return Cast(stream).handle(); }

int SmCount(Stream& stream) { return Cast(stream).core().sm_count; }

void* Workspace(Stream& stream, int64_t bytes) {
  void* data = Cast(stream).workspace(bytes);
  if (data != nullptr) return data;
  Cast(stream).core().errors.Fail(absl::ResourceExhaustedError(absl::StrCat(
      "an op on stream ", stream.name(), " needs ", bytes,
      " bytes of workspace, more than the stream has; make microbatches "
      "smaller")));
  return nullptr;
}

void Fail(const char* message, Stream& stream) {
  Cast(stream).core().errors.Fail(absl::InternalError(
      absl::StrCat("stream ", stream.name(), ": ", message)));
}

bool Check(cudaError_t error, const char* what, Stream& stream) {
  Cast(stream).Check(error, what);
  return error == cudaSuccess;
}

void CheckLaunch(const char* kernel, Stream& stream) {
  Check(cudaGetLastError(), kernel, stream);
}

}  // namespace weft::device::cuda
