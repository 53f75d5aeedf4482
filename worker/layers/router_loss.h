// Losses of a layer's router, as kernels/ops/router_loss has them: what of them
// runs inside pre_dispatch, and the factors that all of it shares.
//
// A microbatch is that of all ranks: sums and counts run over their tokens.
// Each rank computes its own share of a loss, and the shares add up to it.
#ifndef WEFT_WORKER_LAYERS_ROUTER_LOSS_H_
#define WEFT_WORKER_LAYERS_ROUTER_LOSS_H_

#include "kernels/device/device.h"
#include "model/shape.h"
#include "worker/layers/node_context.h"

namespace weft::layers {

// E / (k T^2), T the tokens of all ranks.
double BalanceFactor(const model::Shape& shape);

// In pre_dispatch.forward, once scores and choices are there: writes what the
// losses need later and those that need no other rank.
void RouterLossForward(const NodeContext& ctx, device::Stream& stream);

// In pre_dispatch.dgrad: the gradient of the scores, [T,E], as it must be
// before the mean over ranks; null when no loss has one.
const float* RouterScoresGrad(const NodeContext& ctx, device::Stream& stream);
// In pre_dispatch.dgrad: adds what reaches the logits directly to their
// gradient.
void AddRouterLogitsGrad(const NodeContext& ctx, device::Stream& stream);

}  // namespace weft::layers

#endif  // WEFT_WORKER_LAYERS_ROUTER_LOSS_H_
