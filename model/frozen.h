// What frozen parameters make needless.
#ifndef WEFT_MODEL_FROZEN_H_
#define WEFT_MODEL_FROZEN_H_

#include "model/declaration.h"

namespace weft::model {

// Takes the gradients of frozen parameters out of a declaration, and with them
// every phase of the backward whose results nothing reads any more: the wgrad
// of a node whose parameters are all frozen, and all of the backward before the
// first parameter that is not. Args and values stay as they are.
//
// Requires: a value is written by one phase. Pure.
void DropFrozenGradients(ModelDecl& model);

}  // namespace weft::model

#endif  // WEFT_MODEL_FROZEN_H_
