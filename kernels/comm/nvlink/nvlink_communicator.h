// One group's collectives by copies between GPUs of one host.
#ifndef WEFT_KERNELS_COMM_NVLINK_NVLINK_COMMUNICATOR_H_
#define WEFT_KERNELS_COMM_NVLINK_NVLINK_COMMUNICATOR_H_

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/comm/cuda/communicator.h"
#include "kernels/comm/cuda/stream_memory.h"
#include "kernels/comm/nvlink/board.h"
#include "kernels/comm/nvlink/copy_batch.h"
#include "kernels/comm/nvlink/letters.h"
#include "kernels/comm/nvlink/peer_memory.h"
#include "kernels/comm/nvlink/shared_board.h"
#include "kernels/device/device.h"

namespace weft::comm::nvlink {

// A member's board, as this process maps it: for the host, and for streams.
struct BoardView {
  std::shared_ptr<SharedBoard> board;  // that it is part of
  GroupBoard* host = nullptr;
  GroupBoard* device = nullptr;
};

// A collective is one or more rounds. In a round each rank says that its data
// is ready, fetches from each peer once the peer's is, says that it has, and
// goes on once all peers have fetched from it. All of this is enqueued on the
// stream; copies are made by copy engines.
//
// In a graph that is captured rounds cannot be counted. There every flag is one
// or zero: who waits for a one takes it back before it tells the other side
// what lets that write the next. So whoever replays a graph first waits for the
// others, and rounds outside of graphs may run between.
//
// A host must know where peers' data lies when it enqueues copies. It asks them
// the first time that it sees a call, which waits for their hosts, and
// remembers the answer.
class NvlinkCommunicator : public cuda::CudaCommunicator {
 public:
  // `boards` are those of the members, by place.
  static absl::StatusOr<std::unique_ptr<NvlinkCommunicator>> Create(
      std::shared_ptr<cuda::Link> link, cuda::GroupOptions group, int ordinal,
      std::vector<BoardView> boards);
  ~NvlinkCommunicator() override;

  absl::Status RegisterMemory(
      absl::Span<const device::Buffer* const> buffers) override;

  // Of cuda::Watched.
  std::vector<int> MissingRanks() override;
  absl::Status CheckTransport() override { return absl::OkStatus(); }
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
  // What a rank sends for, of which a collective does one or two.
  enum class Part : int32_t { kGather, kScatter, kExchange, kSpread };
  // What tells a call from others: kind, part, op, op_index, layer, microbatch,
  // the size where all ranks have one, and the own send buffer.
  using Call =
      std::tuple<CollectiveKind, Part, const char*, int32_t, int32_t, int32_t,
                 int64_t, const void*>;  // Where the send buffer of each member
                                         // begins; null for those whose is not
  // registered.
  using Places = std::vector<const std::byte*>;
  // Enqueues what this rank fetches from a member.
  using Fetch = absl::FunctionRef<absl::Status(int member)>;

  // What a rank tells of a call: where its send buffer lies, as the place of a
  // buffer among those registered (-1: in none) and how far inside; and what
  // must be alike on all ranks.
  struct Location {
    int32_t buffer = -1;
    int32_t kind = 0;
    Part part = Part::kGather;
    int32_t op_index = 0;
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  NvlinkCommunicator(std::shared_ptr<cuda::Link> link, cuda::GroupOptions group,
                     std::unique_ptr<cuda::Progress> progress, int ordinal,
                     std::vector<BoardView> boards);

  absl::StatusOr<std::vector<std::string>> Tell(absl::string_view mine);
  Location Locate(const void* data) const;
  absl::StatusOr<const Places*> PlacesOf(Part part, const void* send,
                                         int64_t bytes);
  // `mine` is the own send buffer's.
  absl::StatusOr<Places> AskForPlaces(const Location& mine, const void* send);
  absl::Status CheckSameCall(const Location& mine, const Location& theirs,
                             int member) const;
  absl::Status Round(cudaStream_t stream, Fetch fetch);
  absl::Status CapturedRound(cudaStream_t stream, Fetch fetch);
  // The segments of `recvs` of a member whose send buffer is at `there`.
  absl::Status FetchSegments(int member, const std::byte* there,
                             absl::Span<const Segment> recvs, void* recv,
                             cudaStream_t stream);
  // Rounds for data that is not registered, a window full at a time: those who
  // send put it there; `fetch` gets what to fetch from a member's window and
  // where in the data it belongs.
  absl::Status RoundsByWindow(
      const void* send, bool sends, int64_t bytes, cudaStream_t stream,
      absl::FunctionRef<absl::Status(int member, const void* window, int64_t at,
                                     int64_t bytes)>
          fetch);

  const int ordinal_;
  const std::vector<BoardView> boards_;
  Letters letters_;
  CopyBatch batch_;
  cuda::StreamMemoryOps flags_;      // of a round, to be enqueued
  std::atomic<uint32_t> rounds_{0};  // enqueued; also read by the watchdog
  std::vector<const device::Buffer*> registered_;
  // Of each member, as many as it has registered.
  std::vector<std::vector<std::shared_ptr<PeerMemory>>> peers_;
  std::map<Call, Places> places_;
};

}  // namespace weft::comm::nvlink

#endif  // WEFT_KERNELS_COMM_NVLINK_NVLINK_COMMUNICATOR_H_
