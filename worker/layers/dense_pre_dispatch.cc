#include "model/decoder.h"
#include "worker/layers/attention.h"
#include "worker/layers/nodes.h"

namespace weft::layers {

absl::Status DensePreDispatchForward(const NodeContext& ctx,
                                     device::Stream& stream) {
  AttentionHalfForward(ctx, stream);
  return absl::OkStatus();
}

absl::Status DensePreDispatchDgrad(const NodeContext& ctx,
                                   device::Stream& stream) {
  AttentionHalfDgrad(ctx, ctx.tensor(model::pre_dispatch::kDH1Grad), stream);
  return absl::OkStatus();
}

absl::Status DensePreDispatchWgrad(const NodeContext& ctx,
                                   device::Stream& stream) {
  AttentionHalfWgrad(ctx, stream);
  return absl::OkStatus();
}

}  // namespace weft::layers
