// Scratch of the Mamba-2 block.
#ifndef WEFT_WORKER_LAYERS_MAMBA_H_
#define WEFT_WORKER_LAYERS_MAMBA_H_

#include <cstdint>

#include "model/shape.h"

namespace weft::layers {

// Floats of scratch that forward and dgrad need.
int64_t MambaForwardScratch(const model::Shape& shape);
int64_t MambaDgradScratch(const model::Shape& shape);

}  // namespace weft::layers

#endif  // WEFT_WORKER_LAYERS_MAMBA_H_
