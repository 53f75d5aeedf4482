// ExchangeMeter: the expert-parallel communicator of a job that is timed
// without its exchanges of rows, or with nothing else.
#ifndef WEFT_WORKER_EXEC_EXCHANGE_METER_H_
#define WEFT_WORKER_EXEC_EXCHANGE_METER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"

namespace weft::exec {

// Passes everything on to a communicator, but for AllToAllV and AllGather as
// the mode says. What the node `counts` gathers always passes: without it, a
// step computes something else. The mode changes between steps only. Threads as
// Communicator.
class ExchangeMeter : public comm::Communicator {
 public:
  enum class Mode : uint8_t {
    kPass,
    kRecord,   // and remember the calls, for Replay()
    kLeaveOut  // do nothing: what is to be received stays as it is
  };

  // `inner` is borrowed.
  explicit ExchangeMeter(comm::Communicator* inner) : inner_(*inner) {}

  void set_mode(Mode mode) { mode_ = mode; }

  // Makes the recorded calls again, in order. The memory they name must still
  // be there. Called from work on `stream`.
  absl::Status Replay(device::Stream& stream);

  absl::string_view name() const override { return inner_.name(); }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  absl::Status Reserve(int64_t bytes) override { return inner_.Reserve(bytes); }
  absl::Status AllGather(const void* send, void* recv, int64_t bytes,
                         device::Stream& stream,
                         const comm::CollectiveTag& tag) override;
  absl::Status ReduceScatter(const void* send, void* recv, int64_t elements,
                             DType dtype, device::Stream& stream,
                             const comm::CollectiveTag& tag) override {
    return inner_.ReduceScatter(send, recv, elements, dtype, stream, tag);
  }
  absl::Status AllReduce(void* data, int64_t elements, DType dtype,
                         device::Stream& stream,
                         const comm::CollectiveTag& tag) override {
    return inner_.AllReduce(data, elements, dtype, stream, tag);
  }
  absl::Status AllToAllV(const void* send,
                         absl::Span<const comm::Segment> sends, void* recv,
                         absl::Span<const comm::Segment> recvs,
                         device::Stream& stream,
                         const comm::CollectiveTag& tag) override;
  absl::Status Broadcast(void* data, int64_t bytes, int root,
                         device::Stream& stream,
                         const comm::CollectiveTag& tag) override {
    return inner_.Broadcast(data, bytes, root, stream, tag);
  }
  absl::Status Barrier(device::Stream& stream,
                       const comm::CollectiveTag& tag) override {
    return inner_.Barrier(stream, tag);
  }
  int64_t wire_bytes() const override { return inner_.wire_bytes(); }

 private:
  struct Call {
    const void* send = nullptr;
    void* recv = nullptr;
    comm::CollectiveTag tag;
    // Of an AllGather; -1: it is an AllToAllV.
    int64_t gathered_bytes = -1;
    std::vector<comm::Segment> sends;
    std::vector<comm::Segment> recvs;
  };

  comm::Communicator& inner_;
  Mode mode_ = Mode::kPass;
  std::vector<Call> calls_;
};

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_EXCHANGE_METER_H_
