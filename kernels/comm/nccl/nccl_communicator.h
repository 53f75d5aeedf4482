// One group's collectives over NCCL.
#ifndef WEFT_KERNELS_COMM_NCCL_NCCL_COMMUNICATOR_H_
#define WEFT_KERNELS_COMM_NCCL_NCCL_COMMUNICATOR_H_

#include <nccl.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/comm/cuda/communicator.h"
#include "kernels/comm/nccl/nccl_handle.h"
#include "kernels/device/device.h"

namespace weft::comm::nccl {

// Data moves by ncclAllGather, ncclBroadcast and grouped sends and receives.
// NCCL never sums: it would choose the order by size and topology.
//
// NCCL does not say which rank keeps the others waiting, nor do ranks notice
// that their arguments differ: they move wrong bytes or meet their deadlines.
class NcclCommunicator : public cuda::CudaCommunicator {
 public:
  // In a group of two or more, meets the other ranks and opens all connections.
  // On the device that is current.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Create(
      std::shared_ptr<cuda::Link> link, cuda::GroupOptions group,
      const ncclUniqueId& id);
  ~NcclCommunicator() override;

  // Of cuda::Watched.
  std::vector<int> MissingRanks() override { return {}; }
  absl::Status CheckTransport() override;
  void Abort() override;

 protected:
  absl::Status Gather(const void* send, void* recv, int64_t bytes,
                      cudaStream_t stream) override;
  absl::Status Scatter(const void* send, void* others, int64_t bytes,
                       cudaStream_t stream) override;
  absl::Status Exchange(const void* send, absl::Span<const Segment> sends,
                        void* recv, absl::Span<const Segment> recvs,
                        cudaStream_t stream) override;
  absl::Status Spread(void* data, int64_t bytes, int root,
                      cudaStream_t stream) override;
  absl::Status Meet(cudaStream_t stream) override;

 private:
  NcclCommunicator(std::shared_ptr<cuda::Link> link, cuda::GroupOptions group,
                   std::unique_ptr<cuda::Progress> progress);

  absl::Status Open(const ncclUniqueId& id);
  // So that no step opens a connection.
  absl::Status Connect();

  // [2, size] bytes: what a barrier exchanges. Outlives what runs.
  std::unique_ptr<device::Buffer> token_;
  std::unique_ptr<NcclHandle> handle_;  // null in a group of one
};

}  // namespace weft::comm::nccl

#endif  // WEFT_KERNELS_COMM_NCCL_NCCL_COMMUNICATOR_H_
