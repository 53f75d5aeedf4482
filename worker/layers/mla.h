// The scratch that the block of latent attention needs.
#ifndef WEFT_WORKER_LAYERS_MLA_H_
#define WEFT_WORKER_LAYERS_MLA_H_

#include <cstdint>

#include "model/shape.h"

namespace weft::layers {

// Floats, of forward and of dgrad.
int64_t MlaForwardScratch(const model::Shape& shape);
int64_t MlaDgradScratch(const model::Shape& shape);

}  // namespace weft::layers

#endif  // WEFT_WORKER_LAYERS_MLA_H_
