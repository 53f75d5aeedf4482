// The tables of cosines and sines that rotate queries and keys.
#ifndef WEFT_WORKER_LAYERS_ROTARY_TABLES_H_
#define WEFT_WORKER_LAYERS_ROTARY_TABLES_H_

#include "model/shape.h"
#include "worker/layers/node_context.h"

namespace weft::layers {

// Writes shape.rotary_table_elements() numbers. On the host, once, before the
// first step.
void BuildRotaryTables(const model::Shape& shape, float* tables);

// Where they lie in a copy that nodes can read.
Constants RotaryTablesAt(const model::Shape& shape, const float* tables);

}  // namespace weft::layers

#endif  // WEFT_WORKER_LAYERS_ROTARY_TABLES_H_
