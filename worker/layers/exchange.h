// The all-to-all of rows between the ranks of an EP group, in both directions.
// What is sent and what is received have one format.
#ifndef WEFT_WORKER_LAYERS_EXCHANGE_H_
#define WEFT_WORKER_LAYERS_EXCHANGE_H_

#include "worker/layers/node_context.h"
#include "worker/layers/routing.h"

namespace weft::layers {

// What CombineRows takes for the experts of a rank, where rows come back: with
// gathered tokens, a row is a rank's sum.
inline int64_t CombinedPerRank(const model::Shape& shape) {
  return shape.gathers_tokens() ? 1 : shape.local_experts();
}

// From the send buffers [N, width] to the experts' rows [R, width].
absl::Status SendToExperts(const NodeContext& ctx, const Routing& routing,
                           const device::ConstTensor& sent,
                           const device::Tensor& received, int64_t width,
                           device::Stream& stream);

// The way back: from [R, width] to [N, width].
absl::Status SendBack(const NodeContext& ctx, const Routing& routing,
                      const device::ConstTensor& received,
                      const device::Tensor& sent, int64_t width,
                      device::Stream& stream);

}  // namespace weft::layers

#endif  // WEFT_WORKER_LAYERS_EXCHANGE_H_
