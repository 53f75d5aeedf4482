#include "worker/exec/exchange_meter.h"

#include "base/status_macros.h"

namespace weft::exec {

absl::Status ExchangeMeter::AllToAllV(const void* send,
                                      absl::Span<const comm::Segment> sends,
                                      void* recv,
                                      absl::Span<const comm::Segment> recvs,
                                      device::Stream& stream,
                                      const comm::CollectiveTag& tag) {
  if (mode_ == Mode::kLeaveOut) return absl::OkStatus();
  if (mode_ == Mode::kRecord) {
    calls_.push_back({send,
                      {sends.begin(), sends.end()},
                      recv,
                      {recvs.begin(), recvs.end()},
                      tag});
  }
  return inner_.AllToAllV(send, sends, recv, recvs, stream, tag);
}

absl::Status ExchangeMeter::Replay(device::Stream& stream) {
  for (const Call& call : calls_) {
    RETURN_IF_ERROR(inner_.AllToAllV(call.send, call.sends, call.recv,
                                     call.recvs, stream, call.tag));
  }
  return absl::OkStatus();
}

}  // namespace weft::exec
