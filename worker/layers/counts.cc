#include "model/decoder.h"
#include "worker/layers/gathered.h"
#include "worker/layers/nodes.h"

namespace weft::layers {

absl::Status CountsForward(const NodeContext& ctx, device::Stream& stream) {
  namespace args = model::counts;
  if (ctx.shape->gathers_tokens()) return gathered::CountsForward(ctx, stream);
  const int64_t bytes =
      ctx.shape->experts * static_cast<int64_t>(sizeof(int32_t));
  return ctx.ep->AllGather(ctx.i32(args::kLocal), ctx.i32(args::kAll), bytes,
                           stream, ctx.tag);
}

}  // namespace weft::layers
