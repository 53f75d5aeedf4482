// The scratch that the attention block needs.
#ifndef WEFT_WORKER_LAYERS_ATTENTION_H_
#define WEFT_WORKER_LAYERS_ATTENTION_H_

#include <cstdint>

#include "model/shape.h"

namespace weft::layers {

// Floats, of forward and of dgrad.
int64_t AttentionForwardScratch(const model::Shape& shape);
int64_t AttentionDgradScratch(const model::Shape& shape);

}  // namespace weft::layers

#endif  // WEFT_WORKER_LAYERS_ATTENTION_H_
