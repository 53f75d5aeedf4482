// Attention on a GPU for either format and heads of up to 256, in fp32 on its
// plain cores.
#ifndef WEFT_KERNELS_OPS_ATTENTION_SIMT_ATTENTION_H_
#define WEFT_KERNELS_OPS_ATTENTION_SIMT_ATTENTION_H_

#include "kernels/ops/attention/attention.h"

namespace weft::ops::internal {

// Require: `shape` is not empty. The device fails when heads are wider.
void SimtForward(const AttentionForwardArgs& args, device::Stream& stream);
void SimtBackward(const AttentionBackwardArgs& args, device::Stream& stream);

}  // namespace weft::ops::internal

#endif  // WEFT_KERNELS_OPS_ATTENTION_SIMT_ATTENTION_H_
