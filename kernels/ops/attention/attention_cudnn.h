// Attention in bf16 by cuDNN's fused kernels.
//
// Plans are built when a shape is first seen, which takes a second or two, and
// kept. Both calls enqueue; when cuDNN refuses, the stream's device fails.
// Thread-safe; all streams belong to one device.
#ifndef WEFT_KERNELS_OPS_ATTENTION_ATTENTION_CUDNN_H_
#define WEFT_KERNELS_OPS_ATTENTION_ATTENTION_CUDNN_H_

#include "kernels/ops/attention/attention.h"

namespace weft::ops {

// Whether a call in bf16 of this shape is made through cuDNN.
bool CudnnTakesForward(const AttentionShape& shape);
bool CudnnTakesBackward(const AttentionShape& shape);

// Require: cuDNN takes the shape, tensors are bf16 and aligned to 16 bytes.
void CudnnAttentionForward(const AttentionForwardArgs& args,
                           device::Stream& stream);
void CudnnAttentionBackward(const AttentionBackwardArgs& args,
                            device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_ATTENTION_ATTENTION_CUDNN_H_
