#include "worker/exec/exchange_meter.h"

#include "base/status_macros.h"
#include "model/declaration.h"
#include "worker/layers/node_table.h"

namespace weft::exec {
namespace {

bool IsOfCounts(const comm::CollectiveTag& tag) {
  return absl::string_view(tag.op) ==
         layers::NodeName(model::NodeKind::kCounts, model::Phase::kForward);
}

}  // namespace

absl::Status ExchangeMeter::AllGather(const void* send, void* recv,
                                      int64_t bytes, device::Stream& stream,
                                      const comm::CollectiveTag& tag) {
  if (!IsOfCounts(tag)) {
    if (mode_ == Mode::kLeaveOut) return absl::OkStatus();
    if (mode_ == Mode::kRecord) {
      calls_.push_back({send, recv, tag, bytes, {}, {}});
    }
  }
  return inner_.AllGather(send, recv, bytes, stream, tag);
}

absl::Status ExchangeMeter::AllToAllV(const void* send,
                                      absl::Span<const comm::Segment> sends,
                                      void* recv,
                                      absl::Span<const comm::Segment> recvs,
                                      device::Stream& stream,
                                      const comm::CollectiveTag& tag) {
  if (mode_ == Mode::kLeaveOut) return absl::OkStatus();
  if (mode_ == Mode::kRecord) {
    calls_.push_back({send,
                      recv,
                      tag,
                      -1,
                      {sends.begin(), sends.end()},
                      {recvs.begin(), recvs.end()}});
  }
  return inner_.AllToAllV(send, sends, recv, recvs, stream, tag);
}

absl::Status ExchangeMeter::Replay(device::Stream& stream) {
  for (const Call& call : calls_) {
    if (call.gathered_bytes >= 0) {
      RETURN_IF_ERROR(inner_.AllGather(call.send, call.recv,
                                       call.gathered_bytes, stream, call.tag));
    } else {
      RETURN_IF_ERROR(inner_.AllToAllV(call.send, call.sends, call.recv,
                                       call.recvs, stream, call.tag));
    }
  }
  return absl::OkStatus();
}

}  // namespace weft::exec
