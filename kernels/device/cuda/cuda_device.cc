#include "kernels/device/cuda/cuda_device.h"

#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/device/cuda/core.h"
#include "kernels/device/cuda/stream.h"

namespace weft::device {
namespace {

using cuda::Core;
using cuda::CudaEvent;
using cuda::CudaStream;
using cuda::ToStatus;

class CudaDevice : public Device {
 public:
  CudaDevice(const CudaDeviceOptions& options, std::shared_ptr<Core> core)
      : options_(options), core_(std::move(core)) {}

  ~CudaDevice() override {
    core_->errors.Fail(absl::CancelledError("the device is being destroyed"));
  }

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(
      absl::string_view name) override {
    RETURN_IF_ERROR(core_->Use());
    int lowest = 0;
    int highest = 0;
    RETURN_IF_ERROR(
        ToStatus(cudaDeviceGetStreamPriorityRange(&lowest, &highest),
                 "asking for stream priorities"));
    const bool computes = name == "compute";
    CudaStream::Options stream;
    stream.name = std::string(name);
    stream.priority = computes ? lowest : highest;
    stream.workspace_bytes =
        computes ? options_.compute_workspace_bytes : options_.workspace_bytes;
    return CudaStream::Create(std::move(stream), core_);
  }

  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    return CudaEvent::Create(core_);
  }

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(
      int64_t bytes, MemoryCategory category) override {
    return cuda::AllocateDevice(core_, bytes, category);
  }

  absl::StatusOr<std::unique_ptr<Buffer>> AllocateHost(int64_t bytes) override {
    return cuda::AllocatePinned(core_, bytes);
  }

  absl::Status Poison(void* data, int64_t bytes, Stream& stream) override {
    return static_cast<CudaStream&>(stream).Poison(data, bytes);
  }

  absl::Status ReturnPages(void* data, int64_t bytes, Stream& stream) override {
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> ResidentBytes(const Buffer& buffer) const override {
    return buffer.bytes();
  }

  int64_t bytes_in_use(MemoryCategory category) const override {
    return core_->accounts.in_use(category);
  }
  int64_t bytes_in_use() const override { return core_->accounts.in_use(); }
  int64_t peak_bytes() const override { return core_->accounts.peak(); }

  DeviceCounters counters() const override { return core_->counters.Read(); }

  absl::Status status() const override { return core_->errors.status(); }

  void Fail(absl::Status error) override {
    if (error.ok()) error = absl::CancelledError("the device was cancelled");
    core_->errors.Fail(std::move(error));
  }

 private:
  const CudaDeviceOptions options_;
  const std::shared_ptr<Core> core_;
};

std::string IdentityOf(const cudaDeviceProp& properties) {
  return absl::BytesToHexString(
      absl::string_view(properties.uuid.bytes, sizeof(properties.uuid.bytes)));
}

// Kernels are loaded before the first step: to load one at its first launch,
// the driver waits for the GPU, where a stream may wait for a peer who waits
// for that very kernel. CUDA reads the environment at its first call.
void LoadKernelsEarly() {
  static const bool done = ::setenv("CUDA_MODULE_LOADING", "EAGER", 1) == 0;
  (void)done;
}

absl::StatusOr<cudaDeviceProp> FindDevice(int ordinal) {
  LoadKernelsEarly();
  int devices = 0;
  const absl::Status counted =
      ToStatus(cudaGetDeviceCount(&devices), "counting devices");
  if (!counted.ok() || ordinal < 0 || ordinal >= devices) {
    return absl::FailedPreconditionError(absl::StrCat(
        "CUDA device ", ordinal, " of ", devices, " does not exist",
        counted.ok() ? "" : "; ", counted.message()));
  }
  cudaDeviceProp properties;
  RETURN_IF_ERROR(ToStatus(cudaGetDeviceProperties(&properties, ordinal),
                           "reading the device's properties"));
  if (properties.major == 9 && properties.minor == 0) return properties;
  return absl::FailedPreconditionError(absl::StrCat(
      "CUDA device ", ordinal, " is a ", properties.name,
      " of compute capability ", properties.major, ".", properties.minor,
      "; this build's kernels are for 9.0 (H100, H200)"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(
    CudaDeviceOptions options) {
  if (options.memory_limit_bytes < 0 || options.workspace_bytes < 0 ||
      options.compute_workspace_bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a CUDA device needs memory_limit_bytes, workspace_bytes and "
        "compute_workspace_bytes >= 0, not ",
        options.memory_limit_bytes, ", ", options.workspace_bytes, " and ",
        options.compute_workspace_bytes));
  }
  ASSIGN_OR_RETURN(const cudaDeviceProp properties,
                   FindDevice(options.ordinal));
  auto core =
      std::make_shared<Core>(options.ordinal, properties.multiProcessorCount,
                             options.memory_limit_bytes);
  RETURN_IF_ERROR(core->Use());
  return std::make_unique<CudaDevice>(options, std::move(core));
}

absl::StatusOr<int> CountCudaDevices() {
  LoadKernelsEarly();
  int devices = 0;
  const absl::Status counted =
      ToStatus(cudaGetDeviceCount(&devices), "counting devices");
  if (counted.ok()) return devices;
  return absl::FailedPreconditionError(counted.message());
}

absl::StatusOr<std::string> DescribeCudaDevice(int ordinal) {
  ASSIGN_OR_RETURN(const cudaDeviceProp properties, FindDevice(ordinal));
  return absl::StrCat("name=\"", properties.name,
                      "\" memory_bytes=", properties.totalGlobalMem,
                      " multiprocessors=", properties.multiProcessorCount);
}

absl::StatusOr<std::string> CudaDeviceName(int ordinal) {
  ASSIGN_OR_RETURN(const cudaDeviceProp properties, FindDevice(ordinal));
  return std::string(properties.name);
}

absl::StatusOr<std::vector<LibraryVersion>> CudaVersions() {
  int driver = 0;
  int runtime = 0;
  RETURN_IF_ERROR(ToStatus(cudaDriverGetVersion(&driver),
                           "asking for the driver's version"));
  RETURN_IF_ERROR(ToStatus(cudaRuntimeGetVersion(&runtime),
                           "asking for the runtime's version"));
  return std::vector<LibraryVersion>{
      {"CUDA driver", VersionOf(driver, 1000, 10), {13, 0, 0}},
      {"CUDA runtime", VersionOf(runtime, 1000, 10), {13, 0, 0}}};
}

absl::StatusOr<CudaNeighbours> NeighboursOf(int ordinal) {
  ASSIGN_OR_RETURN(const cudaDeviceProp own, FindDevice(ordinal));
  int devices = 0;
  RETURN_IF_ERROR(ToStatus(cudaGetDeviceCount(&devices), "counting devices"));
  CudaNeighbours neighbours;
  neighbours.device = IdentityOf(own);
  for (int other = 0; other < devices; ++other) {
    if (other == ordinal) continue;
    int reaches = 0;
    RETURN_IF_ERROR(ToStatus(cudaDeviceCanAccessPeer(&reaches, ordinal, other),
                             "asking whether GPUs are peers"));
    if (reaches == 0) continue;
    cudaDeviceProp properties;
    RETURN_IF_ERROR(ToStatus(cudaGetDeviceProperties(&properties, other),
                             "reading a device's properties"));
    neighbours.peers.push_back(IdentityOf(properties));
  }
  return neighbours;
}

}  // namespace weft::device
