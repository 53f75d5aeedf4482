#include "kernels/comm/nvlink/copy_batch.h"

#include "base/status_macros.h"
#include "kernels/device/cuda/core.h"

namespace weft::comm::nvlink {

void CopyBatch::Clear() {
  to_.clear();
  from_.clear();
  sizes_.clear();
}

void CopyBatch::Add(std::byte* to, const std::byte* from, int64_t bytes) {
  if (!sizes_.empty()) {
    const size_t last = sizes_.back();
    if (static_cast<std::byte*>(to_.back()) + last == to &&
        static_cast<const std::byte*>(from_.back()) + last == from) {
      sizes_.back() += static_cast<size_t>(bytes);
      return;
    }
  }
  to_.push_back(to);
  from_.push_back(from);
  sizes_.push_back(static_cast<size_t>(bytes));
}

absl::Status CopyBatch::Enqueue(cudaStream_t stream) const {
  if (sizes_.empty()) return absl::OkStatus();
  cudaMemcpyAttributes attributes = {};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
  size_t first = 0;
  return device::cuda::ToStatus(
      cudaMemcpyBatchAsync(to_.data(), from_.data(), sizes_.data(),
                           sizes_.size(), &attributes, &first,
                           /*numAttrs=*/1, stream),
      "fetching segments from another rank");
}

absl::Status CopyBatch::EnqueueEach(cudaStream_t stream) const {
  for (size_t i = 0; i < sizes_.size(); ++i) {
    RETURN_IF_ERROR(device::cuda::ToStatus(
        cudaMemcpyAsync(to_[i], from_[i], sizes_[i], cudaMemcpyDefault, stream),
        "fetching a segment from another rank"));
  }
  return absl::OkStatus();
}

}  // namespace weft::comm::nvlink
