#include "worker/layers/exchange.h"

namespace weft::layers {

absl::Status SendToExperts(const NodeContext& ctx, const Routing& routing,
                           const device::ConstTensor& sent,
                           const device::Tensor& received, int64_t width,
                           device::Stream& stream) {
  const int64_t row_bytes = width * SizeOf(sent.dtype);
  return ctx.ep->AllToAllV(
      sent.data, routing.SentChunks(row_bytes, ctx.workspace.sends),
      received.data, routing.ReceivedChunks(row_bytes, ctx.workspace.receives),
      stream, ctx.tag);
}

absl::Status SendBack(const NodeContext& ctx, const Routing& routing,
                      const device::ConstTensor& received,
                      const device::Tensor& sent, int64_t width,
                      device::Stream& stream) {
  const int64_t row_bytes = width * SizeOf(sent.dtype);
  return ctx.ep->AllToAllV(
      received.data, routing.ReceivedChunks(row_bytes, ctx.workspace.sends),
      sent.data, routing.SentChunks(row_bytes, ctx.workspace.receives), stream,
      ctx.tag);
}

}  // namespace weft::layers
