// The all-to-all of rows between the ranks of an EP group, in both directions.
#ifndef WEFT_WORKER_LAYERS_EXCHANGE_H_
#define WEFT_WORKER_LAYERS_EXCHANGE_H_

#include "worker/layers/node_context.h"
#include "worker/layers/routing.h"

namespace weft::layers {

// From the send buffers [N, width] to the experts' rows [R, width].
absl::Status SendToExperts(const NodeContext& ctx, const Routing& routing,
                           const float* sent, float* received, int64_t width,
                           device::Stream& stream);

// The way back: from [R, width] to [N, width].
absl::Status SendBack(const NodeContext& ctx, const Routing& routing,
                      const float* received, float* sent, int64_t width,
                      device::Stream& stream);

}  // namespace weft::layers

#endif  // WEFT_WORKER_LAYERS_EXCHANGE_H_
