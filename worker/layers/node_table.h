// Which function computes a declared node phase.
#ifndef WEFT_WORKER_LAYERS_NODE_TABLE_H_
#define WEFT_WORKER_LAYERS_NODE_TABLE_H_

#include "model/declaration.h"
#include "worker/layers/node_context.h"

namespace weft::layers {

// Null when the layer kind has no such node phase. `moe` is that of the layer.
// Called when a program is lowered, never in a step.
NodeFn FindNode(model::NodeKind kind, model::Phase phase);

// "<node>.<phase>", for errors and traces. Static storage.
const char* NodeName(model::NodeKind kind, model::Phase phase);

}  // namespace weft::layers

#endif  // WEFT_WORKER_LAYERS_NODE_TABLE_H_
