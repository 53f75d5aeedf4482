// Dispatch of static sizes: node phases where each rank has the tokens of all
// ranks of its EP group, those of rank 0 first, and picks the rows of its own
// experts. What goes back is its experts' partial sum for each token. How many
// rows there are only the device knows.
#ifndef WEFT_WORKER_LAYERS_GATHERED_H_
#define WEFT_WORKER_LAYERS_GATHERED_H_

#include "worker/layers/node_context.h"

namespace weft::layers::gathered {

// Beside the counts the choices of all tokens, and from them the rows of this
// rank's experts.
absl::Status CountsForward(const NodeContext& ctx, device::Stream& stream);

absl::Status DispatchForward(const NodeContext& ctx, device::Stream& stream);
absl::Status DispatchDgrad(const NodeContext& ctx, device::Stream& stream);

// Fills combine's kBack: of each rank of the group, its partial sums for this
// rank's tokens.
absl::Status PartialSumsBack(const NodeContext& ctx, device::Stream& stream);
// `dy` is what the branch gets of the gradient of the block's output.
absl::Status CombineDgrad(const NodeContext& ctx, const device::ConstTensor& dy,
                          device::Stream& stream);

}  // namespace weft::layers::gathered

#endif  // WEFT_WORKER_LAYERS_GATHERED_H_
