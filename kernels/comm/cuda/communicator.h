// What the communicators of the CUDA backends share: checks, order of sums,
// groups of one, data in host memory, and what the watchdog must know.
#ifndef WEFT_KERNELS_COMM_CUDA_COMMUNICATOR_H_
#define WEFT_KERNELS_COMM_CUDA_COMMUNICATOR_H_

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/comm/collective.h"
#include "kernels/comm/communicator.h"
#include "kernels/comm/cuda/kernels.h"
#include "kernels/comm/cuda/progress.h"
#include "kernels/comm/cuda/staging.h"
#include "kernels/comm/cuda/watchdog.h"

namespace weft::comm::cuda {

// What the communicators of one transport share.
struct Link {
  std::unique_ptr<Watchdog> watchdog;
  Staging staging;
};

struct GroupOptions {
  std::string name;
  int rank = 0;            // inside the group
  std::vector<int> ranks;  // of the world
};

// Collectives return when they are enqueued. Errors that come to light later
// fail the device. Data is device memory; that of AllGather and Broadcast may
// also be pinned host memory. Segments of different sizes at sender and
// receiver are found only where both are this rank.
//
// A collective may be captured into a graph. Its replays are neither watched
// nor counted: they have no deadline, but end with the transport. They run in
// the order in which the group's collectives are enqueued.
//
// One thread at a time: the one that launches on the stream.
class CudaCommunicator : public Communicator, public Watched {
 public:
  ~CudaCommunicator() override = default;

  absl::string_view name() const final { return group_.name; }
  int rank() const final { return group_.rank; }
  int size() const final { return static_cast<int>(group_.ranks.size()); }
  absl::Status Reserve(int64_t bytes) override;
  absl::Status AllGather(const void* send, void* recv, int64_t bytes,
                         device::Stream& stream,
                         const CollectiveTag& tag) final;
  absl::Status ReduceScatter(const void* send, void* recv, int64_t elements,
                             DType dtype, device::Stream& stream,
                             const CollectiveTag& tag) final;
  absl::Status AllReduce(void* data, int64_t elements, DType dtype,
                         device::Stream& stream,
                         const CollectiveTag& tag) final;
  absl::Status AllToAllV(const void* send, absl::Span<const Segment> sends,
                         void* recv, absl::Span<const Segment> recvs,
                         device::Stream& stream,
                         const CollectiveTag& tag) final;
  absl::Status Broadcast(void* data, int64_t bytes, int root,
                         device::Stream& stream,
                         const CollectiveTag& tag) final;
  absl::Status Barrier(device::Stream& stream, const CollectiveTag& tag) final;
  int64_t wire_bytes() const final { return wire_bytes_.load(); }

  // Of Watched.
  absl::string_view group() const final { return group_.name; }
  std::optional<PendingCollective> Oldest(SteadyTime now) final {
    return progress_->Oldest(now);
  }

 protected:
  CudaCommunicator(std::shared_ptr<Link> link, GroupOptions group,
                   std::unique_ptr<Progress> progress)
      : link_(std::move(link)),
        group_(std::move(group)),
        progress_(std::move(progress)) {}

  Link& link() { return *link_; }
  const std::vector<int>& ranks() const { return group_.ranks; }
  // For what a transport enqueues by itself.
  Progress& progress() { return *progress_; }
  // The collective that is being enqueued, and whether it is captured into a
  // graph: then it runs each time that the graph does.
  const CollectiveId& running() const { return running_; }
  bool is_captured() const { return is_captured_; }

  // What a transport does: enqueue on `stream`, in a group of two or more, for
  // device memory and sizes above 0. Arguments as those of Communicator.
  virtual absl::Status Gather(const void* send, void* recv, int64_t bytes,
                              cudaStream_t stream) = 0;
  // Slice r of `send` goes to rank r. Those that come lie in `others` in rank
  // order, without the own one.
  virtual absl::Status Scatter(const void* send, void* others, int64_t bytes,
                               cudaStream_t stream) = 0;
  // Segments of other ranks; those of this one are to be left out. There may be
  // none of either.
  virtual absl::Status Exchange(const void* send,
                                absl::Span<const Segment> sends, void* recv,
                                absl::Span<const Segment> recvs,
                                cudaStream_t stream) = 0;
  virtual absl::Status Spread(void* data, int64_t bytes, int root,
                              cudaStream_t stream) = 0;
  virtual absl::Status Meet(cudaStream_t stream) = 0;

 private:
  using Body = absl::FunctionRef<absl::Status(cudaStream_t)>;

  // One collective: checks that it may start with arguments that are `valid`,
  // then has `body` enqueue it.
  absl::Status Run(CollectiveKind kind, const CollectiveTag& tag,
                   const absl::Status& valid, device::Stream& stream,
                   Body body);
  absl::Status Enqueue(const CollectiveId& id, cudaStream_t stream, Body body);
  absl::Status GatherSlices(const void* send, void* recv, int64_t bytes,
                            cudaStream_t stream);
  absl::Status ReduceSlices(const void* send, void* recv, int64_t elements,
                            DType dtype, cudaStream_t stream);
  absl::Status CopyOwnSegments(const void* send,
                               absl::Span<const Segment> sends, void* recv,
                               absl::Span<const Segment> recvs,
                               cudaStream_t stream);
  void CountSent(int64_t bytes) {
    wire_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }

  const std::shared_ptr<Link> link_;
  const GroupOptions group_;
  const std::unique_ptr<Progress> progress_;
  CollectiveId running_;
  bool is_captured_ = false;
  int64_t sequence_ = 0;           // collectives begun
  std::vector<CopyPiece> pieces_;  // of one call
  std::atomic<int64_t> wire_bytes_{0};
};

}  // namespace weft::comm::cuda

#endif  // WEFT_KERNELS_COMM_CUDA_COMMUNICATOR_H_
