// The functions behind every node phase, one source file a node kind.
//
// All match NodeFn and are found through FindNode; see model/decoder.h for what
// each reads and writes. A forward of several steps is the recompute phase,
// too.
#ifndef WEFT_WORKER_LAYERS_NODES_H_
#define WEFT_WORKER_LAYERS_NODES_H_

#include "worker/layers/node_context.h"

namespace weft::layers {

absl::Status LoadForward(const NodeContext& ctx, device::Stream& stream);

absl::Status LossWeightsForward(const NodeContext& ctx, device::Stream& stream);

absl::Status EmbeddingForward(const NodeContext& ctx, device::Stream& stream);
absl::Status EmbeddingWgrad(const NodeContext& ctx, device::Stream& stream);

absl::Status MtpInputForward(const NodeContext& ctx, device::Stream& stream);
absl::Status MtpInputDgrad(const NodeContext& ctx, device::Stream& stream);
absl::Status MtpInputWgrad(const NodeContext& ctx, device::Stream& stream);

absl::Status AttentionForward(const NodeContext& ctx, device::Stream& stream);
absl::Status AttentionDgrad(const NodeContext& ctx, device::Stream& stream);
absl::Status AttentionWgrad(const NodeContext& ctx, device::Stream& stream);

absl::Status MambaForward(const NodeContext& ctx, device::Stream& stream);
absl::Status MambaDgrad(const NodeContext& ctx, device::Stream& stream);
absl::Status MambaWgrad(const NodeContext& ctx, device::Stream& stream);

absl::Status MlaForward(const NodeContext& ctx, device::Stream& stream);
absl::Status MlaDgrad(const NodeContext& ctx, device::Stream& stream);
absl::Status MlaWgrad(const NodeContext& ctx, device::Stream& stream);

absl::Status PreDispatchForward(const NodeContext& ctx, device::Stream& stream);
absl::Status PreDispatchDgrad(const NodeContext& ctx, device::Stream& stream);

absl::Status SharedExpertForward(const NodeContext& ctx,
                                 device::Stream& stream);
absl::Status SharedExpertDgrad(const NodeContext& ctx, device::Stream& stream);
absl::Status SharedExpertWgrad(const NodeContext& ctx, device::Stream& stream);

absl::Status CountsForward(const NodeContext& ctx, device::Stream& stream);

absl::Status BalanceForward(const NodeContext& ctx, device::Stream& stream);

absl::Status DispatchForward(const NodeContext& ctx, device::Stream& stream);
absl::Status DispatchDgrad(const NodeContext& ctx, device::Stream& stream);

absl::Status ExpertsForward(const NodeContext& ctx, device::Stream& stream);
absl::Status ExpertsDgrad(const NodeContext& ctx, device::Stream& stream);
absl::Status ExpertsWgrad(const NodeContext& ctx, device::Stream& stream);

absl::Status CombineForward(const NodeContext& ctx, device::Stream& stream);
absl::Status CombineDgrad(const NodeContext& ctx, device::Stream& stream);

absl::Status MlpForward(const NodeContext& ctx, device::Stream& stream);
absl::Status MlpDgrad(const NodeContext& ctx, device::Stream& stream);
absl::Status MlpWgrad(const NodeContext& ctx, device::Stream& stream);

absl::Status HeadForward(const NodeContext& ctx, device::Stream& stream);
absl::Status HeadDgrad(const NodeContext& ctx, device::Stream& stream);
absl::Status HeadWgrad(const NodeContext& ctx, device::Stream& stream);

absl::Status LossForward(const NodeContext& ctx, device::Stream& stream);
absl::Status LossDgrad(const NodeContext& ctx, device::Stream& stream);

}  // namespace weft::layers

#endif  // WEFT_WORKER_LAYERS_NODES_H_
