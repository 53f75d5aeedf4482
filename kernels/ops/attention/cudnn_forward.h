// Attention's forward in bf16 by cuDNN's fused kernel.
//
// A plan is built when a shape is first seen, which takes a second or two, and
// kept. Thread-safe; all streams belong to one device.
#ifndef WEFT_KERNELS_OPS_ATTENTION_CUDNN_FORWARD_H_
#define WEFT_KERNELS_OPS_ATTENTION_CUDNN_FORWARD_H_

#include "kernels/ops/attention/attention.h"

namespace weft::ops::internal {

// Whether the forward of this shape in bf16 is done so.
bool IsForCudnn(const AttentionShape& shape);

// Requires: IsForCudnn(shape), tensors are bf16 and aligned to 16 bytes. When
// cuDNN refuses, the device fails.
void CudnnForward(const AttentionForwardArgs& args, device::Stream& stream);

}  // namespace weft::ops::internal

#endif  // WEFT_KERNELS_OPS_ATTENTION_CUDNN_FORWARD_H_
