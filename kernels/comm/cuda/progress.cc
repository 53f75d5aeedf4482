#include "kernels/comm/cuda/progress.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "base/status_macros.h"
#include "kernels/device/cuda/core.h"

namespace weft::comm::cuda {

absl::StatusOr<std::unique_ptr<Progress>> Progress::Create() {
  void* counter = nullptr;
  RETURN_IF_ERROR(device::cuda::ToStatus(
      cudaHostAlloc(&counter, sizeof(uint32_t),
                    cudaHostAllocPortable | cudaHostAllocMapped),
      "allocating a counter of collectives"));
  *static_cast<uint32_t*>(counter) = 0;
  return absl::WrapUnique(new Progress(static_cast<uint32_t*>(counter)));
}

Progress::~Progress() { (void)cudaFreeHost(counter_); }

int64_t Progress::DoneLocked() const {
  const uint32_t done = __atomic_load_n(counter_, __ATOMIC_ACQUIRE);
  return begun_ - static_cast<uint32_t>(static_cast<uint32_t>(begun_) - done);
}

bool Progress::HasRoom() const {
  MutexLock lock(&mu_);
  return begun_ - DoneLocked() < kCapacity;
}

void Progress::Begin(const CollectiveId& id) {
  MutexLock lock(&mu_);
  slots_[begun_ % kCapacity] = {id, std::chrono::steady_clock::now()};
  ++begun_;
}

absl::Status Progress::End(cudaStream_t stream) {
  uint32_t number = 0;
  {
    MutexLock lock(&mu_);
    number = static_cast<uint32_t>(begun_);
  }
  write_.Write(number, counter_);
  return write_.Enqueue(stream);
}

std::optional<PendingCollective> Progress::Oldest(SteadyTime now) {
  MutexLock lock(&mu_);
  const int64_t done = DoneLocked();
  if (done == begun_) return std::nullopt;
  if (done != seen_done_) {
    seen_done_ = done;
    seen_at_ = now;
  }
  PendingCollective oldest = slots_[done % kCapacity];
  oldest.since = std::max(oldest.since, seen_at_);
  return oldest;
}

}  // namespace weft::comm::cuda
