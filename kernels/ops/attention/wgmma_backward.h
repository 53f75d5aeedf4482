// Attention's backward in bf16 on Hopper's tensor cores.
#ifndef WEFT_KERNELS_OPS_ATTENTION_WGMMA_BACKWARD_H_
#define WEFT_KERNELS_OPS_ATTENTION_WGMMA_BACKWARD_H_

#include "kernels/ops/attention/attention.h"

namespace weft::ops::internal {

// Whether the backward of this shape in bf16 is done so.
bool IsForWgmma(const AttentionShape& shape);

// Requires: IsForWgmma(shape), tensors are bf16, aligned to 16 bytes and not
// empty.
void WgmmaBackward(const AttentionBackwardArgs& args, device::Stream& stream);

}  // namespace weft::ops::internal

#endif  // WEFT_KERNELS_OPS_ATTENTION_WGMMA_BACKWARD_H_
