// Declares what backward computes again.
#ifndef WEFT_MODEL_RECOMPUTE_H_
#define WEFT_MODEL_RECOMPUTE_H_

#include "model/declaration.h"
#include "model/recompute_part.h"

namespace weft::model {

// Gives nodes of decoder layers a phase kRecompute with the steps of their
// forward that `what` covers and whose results backward reads, or another
// recompute. They write values of their own, "<name>.recomputed", which
// backward then reads, so that nothing keeps forward's. The same op computes
// both from the same inputs: they are equal to the bit.
//
// What another layer reads, like a layer's output, is kept; so is what is
// written by no step, like all that a router chose.
//
// Requires: `model` has no such phases yet.
void AddRecompute(const Recompute& what, ModelDecl& model);

}  // namespace weft::model

#endif  // WEFT_MODEL_RECOMPUTE_H_
