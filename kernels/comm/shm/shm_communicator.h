// One group's collectives by copies out of the members' windows.
#ifndef WEFT_KERNELS_COMM_SHM_SHM_COMMUNICATOR_H_
#define WEFT_KERNELS_COMM_SHM_SHM_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/comm/cancellation.h"
#include "kernels/comm/collective.h"
#include "kernels/comm/communicator.h"
#include "kernels/comm/shared_region.h"
#include "kernels/comm/shm/board.h"

namespace weft::comm::shm {

struct MemberOptions {
  std::string name;                 // of the group
  std::vector<int> ranks;           // of the world
  int member = 0;                   // this rank's place in the group
  std::vector<GroupBoard*> boards;  // of all members, by place
  std::vector<std::shared_ptr<SharedRegion>> regions;  // that hold them
  absl::Duration deadline;
  Cancellation* cancellation = nullptr;  // may be null
};

class ShmCommunicator : public Communicator, public CancellationListener {
 public:
  explicit ShmCommunicator(MemberOptions options);
  ~ShmCommunicator() override;

  absl::string_view name() const override { return o_.name; }
  int rank() const override { return o_.member; }
  int size() const override { return static_cast<int>(o_.boards.size()); }
  // Windows stage whatever there is.
  absl::Status Reserve(int64_t bytes) override { return absl::OkStatus(); }

  absl::Status AllGather(const void* send, void* recv, int64_t bytes,
                         device::Stream& stream,
                         const CollectiveTag& tag) override;
  absl::Status ReduceScatter(const void* send, void* recv, int64_t elements,
                             DType dtype, device::Stream& stream,
                             const CollectiveTag& tag) override;
  absl::Status AllReduce(void* data, int64_t elements, DType dtype,
                         device::Stream& stream,
                         const CollectiveTag& tag) override;
  absl::Status AllToAllV(const void* send, absl::Span<const Segment> sends,
                         void* recv, absl::Span<const Segment> recvs,
                         device::Stream& stream,
                         const CollectiveTag& tag) override;
  absl::Status Broadcast(void* data, int64_t bytes, int root,
                         device::Stream& stream,
                         const CollectiveTag& tag) override;
  absl::Status Barrier(device::Stream& stream,
                       const CollectiveTag& tag) override;
  int64_t wire_bytes() const override {
    return wire_bytes_.load(std::memory_order_relaxed);
  }

  void OnCancelled() override;

 private:
  // Where in its list of segments a rank is with one peer.
  struct Cursor {
    size_t segment = 0;
    int64_t done = 0;  // bytes of that segment
  };
  using Step = absl::FunctionRef<absl::Status()>;

  GroupBoard& own() { return *o_.boards[o_.member]; }
  int64_t slot_bytes() const { return kWindowBytes / size() / 64 * 64; }

  // Begins a collective: its call is what later rounds show.
  void Begin(CollectiveKind kind, const CollectiveTag& tag, int64_t count,
             DType dtype = DType::kF32, int root = 0);
  // `error` with what the collective at hand is called.
  absl::Status Named(const absl::Status& error) const;
  // Ends it: on an error the group is left. Counts what was sent to others.
  absl::Status End(const absl::Status& status, int64_t sent);
  // Fills the window with `fill`, and calls `read` when all members have.
  absl::Status Round(Step fill, Step read);
  // A round for each piece of `bytes`, `piece` long at most; one at least.
  absl::Status Rounds(int64_t bytes, int64_t piece,
                      absl::FunctionRef<void(int64_t at, int64_t bytes)> fill,
                      absl::FunctionRef<void(int64_t at, int64_t bytes)> read);
  // Until all members' flags have come to `wanted`.
  absl::Status Await(Flag GroupBoard::*flag, uint32_t wanted);
  std::vector<int> Missing(Flag GroupBoard::*flag, uint32_t wanted) const;
  absl::Status CheckWait(Flag GroupBoard::*flag, uint32_t wanted) const;
  void RingOthers();
  absl::Status CheckSameCall() const;

  absl::Status Gather(const void* send, void* recv, int64_t bytes);
  absl::Status Scatter(const void* send, void* recv, int64_t elements,
                       DType dtype);
  absl::Status Exchange(const void* send, absl::Span<const Segment> sends,
                        void* recv, absl::Span<const Segment> recvs);
  // Moves the cursor over segments of `peer` by up to `bytes`, calling `copy`
  // with the offset of each run in the buffer; returns how far it got.
  static int64_t Advance(
      absl::Span<const Segment> segments, int peer, int64_t bytes,
      Cursor& cursor,
      absl::FunctionRef<void(int64_t offset, int64_t bytes)> copy);
  void FillParts(const void* send, absl::Span<const Segment> sends);
  absl::Status ReadParts(void* recv, absl::Span<const Segment> recvs);
  absl::Status CheckParts(absl::Span<const Segment> recvs) const;

  const MemberOptions o_;
  std::vector<const void*> sources_;  // by member
  std::vector<Cursor> sent_;          // likewise
  std::vector<Cursor> received_;
  CollectiveId id_;
  absl::Time until_;    // the deadline of the collective at hand
  uint32_t round_ = 0;  // the last one begun
  absl::Status error_;
  std::atomic<int64_t> wire_bytes_{0};
};

}  // namespace weft::comm::shm

#endif  // WEFT_KERNELS_COMM_SHM_SHM_COMMUNICATOR_H_
