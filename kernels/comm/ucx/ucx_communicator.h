// One group's collectives as direct exchanges of tagged messages.
#ifndef WEFT_KERNELS_COMM_UCX_UCX_COMMUNICATOR_H_
#define WEFT_KERNELS_COMM_UCX_UCX_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/comm/collective.h"
#include "kernels/comm/communicator.h"
#include "kernels/comm/ucx/ucx_link.h"
#include "kernels/comm/ucx/ucx_worker.h"

namespace weft::comm::ucx {

struct GroupOptions {
  std::string name;
  int id = 0;
  int rank = 0;  // inside the group
  std::vector<int> ranks;
};

// Every rank sends to every other rank directly; one collective is one exchange
// of the worker, an AllReduce two. A message's tag is, from the top:
//
//   12 bits id of the group | 3 kind | 20 exchange | 12 sender | 17 message
//
// so that messages of different groups, collectives and senders never match,
// however far ranks run ahead of each other.
//
// One thread at a time, the one that the link serves.
class UcxCommunicator : public Communicator {
 public:
  // `link` is shared with the transport and its other communicators.
  UcxCommunicator(std::shared_ptr<UcxLink> link, GroupOptions options);

  absl::string_view name() const override { return options_.name; }
  int rank() const override { return options_.rank; }
  int size() const override { return static_cast<int>(options_.ranks.size()); }
  absl::Status Reserve(int64_t bytes) override;
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

 private:
  // A collective that has begun.
  struct Running {
    CollectiveId id;
    UcxWorker::TimePoint deadline;
  };

  absl::Status Start(CollectiveKind kind, const CollectiveTag& tag,
                     Running* running);
  // Refuses a collective whose arguments make no sense.
  absl::Status Refuse(const Running& running, const absl::Status& error);
  // Starts the next exchange, of at most `messages` messages.
  void BeginExchange(const Running& running, int64_t messages);
  absl::Status FinishExchange(const Running& running);

  // The tag of message `index` that member `sender` sends in this exchange.
  uint64_t TagOf(int sender, int64_t index) const;
  void Recv(int member, void* data, int64_t bytes);
  void Send(int member, const void* data, int64_t bytes);

  absl::Status GatherSlices(const Running& running, const void* send,
                            void* recv, int64_t bytes);
  absl::Status ReduceSlices(const Running& running, const void* send,
                            void* recv, int64_t elements, DType dtype);
  // INVALID_ARGUMENT when a tag has no room to number so many messages.
  absl::Status CheckMessages(int64_t messages);
  absl::Status CheckSliceMessages(int64_t elements, DType dtype);
  int64_t CountMessages(absl::Span<const Segment> segments) const;

  const std::shared_ptr<UcxLink> link_;
  const GroupOptions options_;
  int64_t sequence_ = 0;                    // collectives begun
  uint64_t exchange_ = 0;                   // exchanges begun
  uint64_t tag_prefix_ = 0;                 // group, kind and exchange
  std::vector<int64_t> sent_messages_;      // by member, in this exchange
  std::vector<int64_t> received_messages_;  // likewise
  std::vector<const void*> sources_;        // of a sum, by member
  std::atomic<int64_t> wire_bytes_{0};
};

}  // namespace weft::comm::ucx

#endif  // WEFT_KERNELS_COMM_UCX_UCX_COMMUNICATOR_H_
