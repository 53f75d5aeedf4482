// Streams and events of the CUDA device.
#ifndef WEFT_KERNELS_DEVICE_CUDA_STREAM_H_
#define WEFT_KERNELS_DEVICE_CUDA_STREAM_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device/cuda/core.h"
#include "kernels/device/device.h"

namespace weft::device::cuda {

// See device::Event. Without timing.
class CudaEvent : public Event {
 public:
  static absl::StatusOr<std::unique_ptr<CudaEvent>> Create(
      std::shared_ptr<Core> core);
  ~CudaEvent() override;

  // Comes back early when the device fails, although the GPU may be stuck.
  absl::Status Synchronize() override;

  cudaEvent_t handle() const { return handle_; }

 private:
  CudaEvent(std::shared_ptr<Core> core, cudaEvent_t handle)
      : core_(std::move(core)), handle_(handle) {}

  const std::shared_ptr<Core> core_;
  const cudaEvent_t handle_;
};

// See device::Stream. An error of CUDA fails the device.
class CudaStream : public Stream {
 public:
  struct Options {
    std::string name;
    int priority = 0;
    int64_t workspace_bytes = 0;
  };
  static absl::StatusOr<std::unique_ptr<CudaStream>> Create(
      Options options, std::shared_ptr<Core> core);
  // Waits for what is enqueued.
  ~CudaStream() override;

  absl::string_view name() const override { return options_.name; }
  Backend backend() const override { return Backend::kCuda; }
  void Launch(WorkFn fn, void* arg) override;
  void Wait(Event& event) override;
  void Record(Event& event) override;
  absl::Status Synchronize() override;
  void Timestamp(Clock& clock, int64_t* ns) override;
  void CallHost(HostFn fn, void* arg) override;
  void BeginRange(const char* label) override;
  void EndRange() override;

  absl::Status Poison(void* data, int64_t bytes);

  Core& core() const { return *core_; }
  cudaStream_t handle() const { return handle_; }
  // Null when it has less.
  void* workspace(int64_t bytes) const;
  void Check(cudaError_t error, absl::string_view what);

 private:
  // A timestamp that is not known yet. Its event is used again and again.
  struct Pending {
    cudaEvent_t event = nullptr;
    int64_t* ns = nullptr;
  };

  // A function that the driver is to call. Its memory is used again and again.
  struct HostCall {
    Core* core = nullptr;
    HostFn fn = nullptr;
    void* arg = nullptr;
  };

  CudaStream(Options options, std::shared_ptr<Core> core)
      : options_(std::move(options)), core_(std::move(core)) {}

  cudaError_t RecordTimestamp(Clock& clock, int64_t* ns);
  // Requires: the stream is empty.
  void ResolveTimestamps();
  static void CUDART_CB RunHostCall(void* call);

  const Options options_;
  const std::shared_ptr<Core> core_;
  cudaStream_t handle_ = nullptr;
  std::unique_ptr<Buffer> workspace_;
  std::vector<Pending> timestamps_;
  size_t num_pending_ = 0;
  std::deque<HostCall> host_calls_;  // a deque, because they must not move
  size_t num_host_calls_ = 0;        // since the stream was empty
};

}  // namespace weft::device::cuda

#endif  // WEFT_KERNELS_DEVICE_CUDA_STREAM_H_
