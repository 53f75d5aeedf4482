// The CPU as a device: streams are threads, memory is pages of the system.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<device::Device> device,
//                    device::CreateCpuDevice({}));
//   ASSIGN_OR_RETURN(auto compute, device->CreateStream("compute"));
//   ASSIGN_OR_RETURN(auto buffer, device->Allocate(1 << 20,
//                                                  MemoryCategory::kArena));
//   compute->Launch(&Fill, buffer->data());
//   RETURN_IF_ERROR(compute->Synchronize());
#ifndef WEFT_KERNELS_DEVICE_CPU_CPU_DEVICE_H_
#define WEFT_KERNELS_DEVICE_CPU_CPU_DEVICE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device/device.h"

namespace weft::device {

struct CpuDeviceOptions {
  // Bytes that all buffers of Allocate() may hold together; 0: no limit.
  int64_t memory_limit_bytes = 0;

  // Commands a stream can hold before its queue grows. More than one step's
  // commands on a stream, so that a step does not allocate.
  int stream_queue_capacity = 1024;
};

// Makes a device whose streams sleep when they have nothing to run. Each stream
// is one thread, named "weft-<stream>".
//
// Guarantees, beyond those of device::Device:
// - What was written by work on one stream is seen by work on another that
//   waited for an event recorded after it.
// - Buffers are whole pages, page aligned. Accounts count the bytes asked for;
//   memory of AllocateHost() is not counted.
// - Poison() and ReturnPages() called inside work of the stream they are given
//   act at once; called by the host they are enqueued.
// - A stream runs what is queued before it is destroyed.
// - Destroying the device fails it (CANCELLED), which drops queued work, and
//   joins all its threads. Work that runs is waited for. Streams, events and
//   buffers may be destroyed after their device, but not while it is being
//   destroyed; work launched on such a stream is dropped.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(
    CpuDeviceOptions options);

}  // namespace weft::device

#endif  // WEFT_KERNELS_DEVICE_CPU_CPU_DEVICE_H_
