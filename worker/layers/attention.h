// The attention half of a decoder layer, the same in MoE and dense layers:
// h1 = x + out(attention(rotary(qkv(norm1(x))))).
//
// Works on the first args of pre_dispatch, which both kinds of layer declare.
#ifndef WEFT_WORKER_LAYERS_ATTENTION_H_
#define WEFT_WORKER_LAYERS_ATTENTION_H_

#include "worker/layers/node_context.h"

namespace weft::layers {

void AttentionHalfForward(const NodeContext& ctx, device::Stream& stream);

// From the gradient of h1, `d_h1`, to that of x.
void AttentionHalfDgrad(const NodeContext& ctx, const device::ConstTensor& d_h1,
                        device::Stream& stream);

void AttentionHalfWgrad(const NodeContext& ctx, device::Stream& stream);

// Floats of scratch that forward and dgrad need.
int64_t AttentionForwardScratch(const model::Shape& shape);
int64_t AttentionDgradScratch(const model::Shape& shape);

}  // namespace weft::layers

#endif  // WEFT_WORKER_LAYERS_ATTENTION_H_
