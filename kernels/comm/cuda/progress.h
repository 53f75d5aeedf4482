// How far the collectives of one communicator have come on the device.
#ifndef WEFT_KERNELS_COMM_CUDA_PROGRESS_H_
#define WEFT_KERNELS_COMM_CUDA_PROGRESS_H_

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "kernels/comm/collective.h"
#include "kernels/comm/cuda/stream_memory.h"

namespace weft::comm::cuda {

using SteadyTime = std::chrono::steady_clock::time_point;

// A collective that has been enqueued and has not run.
struct PendingCollective {
  CollectiveId id;
  // When it was enqueued or the one before it had run, whichever was later.
  SteadyTime since;
};

// The stream itself counts, in host memory, the collectives that have run; so
// looking at them needs no call of CUDA.
//
// Begin() and End() are the launching thread's; the others are any thread's.
class Progress {
 public:
  // That may be enqueued and not yet have run.
  static constexpr int64_t kCapacity = 4096;

  static absl::StatusOr<std::unique_ptr<Progress>> Create();
  ~Progress();

  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool HasRoom() const;

  // `id` is about to be enqueued. Requires room.
  void Begin(const CollectiveId& id);
  // It has run when what `stream` holds now has run.
  absl::Status End(cudaStream_t stream);

  // The first that has not run.
  std::optional<PendingCollective> Oldest(SteadyTime now);

 private:
  explicit Progress(uint32_t* counter) : counter_(counter), slots_(kCapacity) {}

  int64_t DoneLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  uint32_t* const counter_;  // pinned; of those done, modulo 2^32
  StreamMemoryOps write_;
  mutable Mutex mu_;
  std::vector<PendingCollective> slots_ ABSL_GUARDED_BY(mu_);
  int64_t begun_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t seen_done_ ABSL_GUARDED_BY(mu_) = 0;  // by Oldest()
  SteadyTime seen_at_ ABSL_GUARDED_BY(mu_);     // likewise
};

}  // namespace weft::comm::cuda

#endif  // WEFT_KERNELS_COMM_CUDA_PROGRESS_H_
