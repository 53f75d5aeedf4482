// An NVIDIA GPU as a device: streams are CUDA streams.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<device::Device> device,
//                    device::CreateCudaDevice({}));
#ifndef WEFT_KERNELS_DEVICE_CUDA_CUDA_DEVICE_H_
#define WEFT_KERNELS_DEVICE_CUDA_CUDA_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/library_version.h"
#include "kernels/device/device.h"

namespace weft::device {

struct CudaDeviceOptions {
  // Among the devices that this process sees.
  int ordinal = 0;

  // Bytes that all buffers of Allocate() and workspaces may hold together; 0:
  // what the device has.
  int64_t memory_limit_bytes = 0;

  // Of the stream named "compute", and of each other stream; see
  // cuda/launch.h. Charged to kStaging.
  int64_t compute_workspace_bytes = int64_t{512} << 20;
  int64_t workspace_bytes = int64_t{16} << 20;
};

// Makes a device of compute capability 9.0. FAILED_PRECONDITION, naming what
// was found and what is needed, when there is none.
//
// Guarantees, beyond those of device::Device:
// - The stream named "compute" has the lowest priority, all others the highest.
// - Work runs on the launching thread when it is launched, and enqueues. So
//   does Poison(); ReturnPages() does nothing.
// - Synchronize() of an event comes back when the device fails, although the
//   GPU may still be busy; that of a stream waits for the GPU.
// - Buffers come from plain cudaMalloc: they can be shared with processes of
//   the same host. Memory of AllocateHost() is pinned and mapped: device code
//   can use it by the same address.
// - Streams, events and buffers may be destroyed after their device.
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(
    CudaDeviceOptions options);

// How many GPUs this process sees. FAILED_PRECONDITION when CUDA cannot say.
absl::StatusOr<int> CountCudaDevices();

// What a worker says of its device at its start: GPU, memory. Errors are those
// of CreateCudaDevice().
absl::StatusOr<std::string> DescribeCudaDevice(int ordinal);

// E.g. "NVIDIA H200". Errors are those of CreateCudaDevice().
absl::StatusOr<std::string> CudaDeviceName(int ordinal);

// Of CUDA's driver and runtime. What CUDA says when there is no driver.
absl::StatusOr<std::vector<LibraryVersion>> CudaVersions();

// A GPU and those whose memory it can read, among the devices that this process
// sees; by what no other GPU has.
struct CudaNeighbours {
  std::string device;
  std::vector<std::string> peers;
};
absl::StatusOr<CudaNeighbours> NeighboursOf(int ordinal);

}  // namespace weft::device

#endif  // WEFT_KERNELS_DEVICE_CUDA_CUDA_DEVICE_H_
