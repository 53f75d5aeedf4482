// Stream memory operations: a stream writes a number, or waits for one, without
// the host and without a multiprocessor.
#ifndef WEFT_KERNELS_COMM_CUDA_STREAM_MEMORY_H_
#define WEFT_KERNELS_COMM_CUDA_STREAM_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"

namespace weft::comm::cuda {

// Once all earlier work of `stream` has run and its writes can be seen by the
// host and by other GPUs, *address = value.
//
// `address`: device memory, of this GPU or mapped from another, or pinned host
// memory.
absl::Status WriteValue(uint32_t value, uint32_t* address, cudaStream_t stream);

// Later work of `stream` runs once *address has reached `value`, in arithmetic
// modulo 2^32: once int32(*address - value) >= 0. `address` as above.
absl::Status WaitForValue(uint32_t value, uint32_t* address,
                          cudaStream_t stream);

}  // namespace weft::comm::cuda

#endif  // WEFT_KERNELS_COMM_CUDA_STREAM_MEMORY_H_
