// Whether a declaration leaves the ops the scratch they ask for.
//
// `model` sizes scratch without knowing the ops. An engine checks it once.
#ifndef WEFT_WORKER_LAYERS_SCRATCH_H_
#define WEFT_WORKER_LAYERS_SCRATCH_H_

#include "absl/status/status.h"
#include "model/declaration.h"
#include "model/shape.h"

namespace weft::layers {

// INTERNAL, naming value, bytes declared and bytes needed.
absl::Status CheckScratch(const model::Shape& shape,
                          const model::ModelDecl& model);

}  // namespace weft::layers

#endif  // WEFT_WORKER_LAYERS_SCRATCH_H_
