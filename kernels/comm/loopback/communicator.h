// One rank's communicator of an in-process group. See LoopbackWorld.
#ifndef WEFT_KERNELS_COMM_LOOPBACK_COMMUNICATOR_H_
#define WEFT_KERNELS_COMM_LOOPBACK_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/comm/cancellation.h"
#include "kernels/comm/collective.h"
#include "kernels/comm/communicator.h"
#include "kernels/comm/loopback/group.h"

namespace weft::comm::loopback {

struct MemberOptions {
  int member = 0;  // rank inside the group
  absl::Duration deadline;
  Cancellation* cancellation = nullptr;  // may be null
  std::function<absl::Status(absl::string_view, const CollectiveTag&, int)>
      interceptor;  // may be empty
};

// Copies straight out of the other members' memory while all of them are
// between arrival and departure.
class LoopbackCommunicator : public Communicator, public CancellationListener {
 public:
  // `group` is shared by its members: the last one to go frees it.
  LoopbackCommunicator(std::shared_ptr<Group> group, MemberOptions options);
  ~LoopbackCommunicator() override;

  absl::string_view name() const override { return group_->name(); }
  int rank() const override { return options_.member; }
  int size() const override { return group_->size(); }
  absl::Status Reserve(int64_t bytes) override;
  // Needs none, but refuses other memory from then on where a backend that
  // needs it would.
  absl::Status RegisterMemory(
      absl::Span<const device::Buffer* const> buffers) override;
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
  int64_t wire_bytes() const override { return wire_bytes_.load(); }

  void OnCancelled() override { group_->Wake(); }

 private:
  using Copy = absl::Status (LoopbackCommunicator::*)(const Call& call);

  Call MakeCall(CollectiveKind kind, const CollectiveTag& tag) const;
  // Refuses a call before anybody waits for it.
  absl::Status Refuse(const CollectiveId& id, const absl::Status& error);
  // Meets the others, runs `copy` when all calls match, and meets them again.
  absl::Status Exchange(const Call& call, Copy copy, int64_t wire_bytes);
  absl::Status CheckSameCall(const Call& call) const;
  absl::Status CheckRegistered(const void* send) const;

  absl::Status CopyAllGather(const Call& call);
  absl::Status CopyReduceScatter(const Call& call);
  absl::Status CopyAllReduce(const Call& call);
  absl::Status CopyAllToAllV(const Call& call);
  absl::Status CopyBroadcast(const Call& call);
  absl::Status CopyNothing(const Call& call);

  // Sums the own slice of all members' `send` into `out`.
  void SumOwnSlice(const Call& call, void* out);

  const std::shared_ptr<Group> group_;
  const MemberOptions options_;
  std::vector<const void*> sources_;  // of a sum; one per member
  std::vector<const device::Buffer*> registered_;
  int64_t sequence_ = 0;
  std::atomic<int64_t> wire_bytes_{0};
};

}  // namespace weft::comm::loopback

#endif  // WEFT_KERNELS_COMM_LOOPBACK_COMMUNICATOR_H_
