// What a kernel needs to be launched on a stream of the CUDA device. For .cu
// files: it includes CUDA's headers alone.
//
// All streams here are of the CUDA backend. Called from inside work launched on
// the stream (device::WorkFn). After an error the device has failed, as after
// an error of the work itself: later launches are dropped.
#ifndef WEFT_KERNELS_DEVICE_CUDA_LAUNCH_H_
#define WEFT_KERNELS_DEVICE_CUDA_LAUNCH_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device/backend.h"

namespace weft::device::cuda {

cudaStream_t Handle(Stream& stream);

// Multiprocessors of the stream's device.
int SmCount(Stream& stream);

// `bytes` of memory for what runs on this stream: the stream's next op may
// overwrite it. Aligned to 256 bytes. Null, and the device fails, when the
// stream has less.
void* Workspace(Stream& stream, int64_t bytes);

// Fails the device of the stream with `message`.
void Fail(const char* message, Stream& stream);

// False, and the device fails with `what` and the error's name, unless `error`
// is success.
bool Check(cudaError_t error, const char* what, Stream& stream);

// Checks the kernel launched last by this thread.
void CheckLaunch(const char* kernel, Stream& stream);

}  // namespace weft::device::cuda

#endif  // WEFT_KERNELS_DEVICE_CUDA_LAUNCH_H_
