// Stream memory operations: a stream writes a number, or waits for one, without
// the host and without a multiprocessor.
#ifndef WEFT_KERNELS_COMM_CUDA_STREAM_MEMORY_H_
#define WEFT_KERNELS_COMM_CUDA_STREAM_MEMORY_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace weft::comm::cuda {

// Operations that are enqueued by one call of the driver, in order. Addresses
// are of device memory, of this GPU or mapped from another, or of pinned host
// memory as the device sees it.
//
// One thread at a time.
class StreamMemoryOps {
 public:
  // Once all earlier work of the stream has run and its writes can be seen by
  // the host and by other GPUs, *address = value.
  void Write(uint32_t value, uint32_t* address);

  // Later work of the stream runs once *address has reached `value`, in
  // arithmetic modulo 2^32: once int32(*address - value) >= 0.
  void WaitFor(uint32_t value, uint32_t* address);

  // Enqueues them, and forgets them. Nothing when there are none.
  absl::Status Enqueue(cudaStream_t stream);

 private:
  std::vector<CUstreamBatchMemOpParams> ops_;
};

}  // namespace weft::comm::cuda

#endif  // WEFT_KERNELS_COMM_CUDA_STREAM_MEMORY_H_
