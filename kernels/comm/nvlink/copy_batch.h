// Copies that are enqueued by one call.
#ifndef WEFT_KERNELS_COMM_NVLINK_COPY_BATCH_H_
#define WEFT_KERNELS_COMM_NVLINK_COPY_BATCH_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace weft::comm::nvlink {

// Copies in no order. One thread at a time.
class CopyBatch {
 public:
  void Clear();

  // One that goes on where the last one ended, on both sides, becomes part of
  // it. Requires bytes > 0.
  void Add(std::byte* to, const std::byte* from, int64_t bytes);

  // How many copies there are.
  int64_t size() const { return static_cast<int64_t>(sizes_.size()); }

  // Enqueues them, on copy engines where the driver can.
  absl::Status Enqueue(cudaStream_t stream) const;

  // The same by a call each, as a stream takes them that is being captured.
  absl::Status EnqueueEach(cudaStream_t stream) const;

 private:
  std::vector<void*> to_;
  std::vector<const void*> from_;
  std::vector<size_t> sizes_;
};

}  // namespace weft::comm::nvlink

#endif  // WEFT_KERNELS_COMM_NVLINK_COPY_BATCH_H_
