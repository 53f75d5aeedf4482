#include "worker/layers/exchange.h"

namespace weft::layers {

absl::Status SendToExperts(const NodeContext& ctx, const Routing& routing,
                           const float* sent, float* received, int64_t width,
                           device::Stream& stream) {
  const int64_t row_bytes = width * static_cast<int64_t>(sizeof(float));
  return ctx.ep->AllToAllV(
      sent, routing.SentChunks(row_bytes, ctx.workspace.sends), received,
      routing.ReceivedChunks(row_bytes, ctx.workspace.receives), stream,
      ctx.tag);
}

absl::Status SendBack(const NodeContext& ctx, const Routing& routing,
                      const float* received, float* sent, int64_t width,
                      device::Stream& stream) {
  const int64_t row_bytes = width * static_cast<int64_t>(sizeof(float));
  return ctx.ep->AllToAllV(
      received, routing.ReceivedChunks(row_bytes, ctx.workspace.sends), sent,
      routing.SentChunks(row_bytes, ctx.workspace.receives), stream, ctx.tag);
}

}  // namespace weft::layers
