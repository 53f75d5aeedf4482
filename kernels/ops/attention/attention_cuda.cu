// Which kernels run attention on a GPU, decided by format and shape.
#include "kernels/ops/attention/attention.h"
#include "kernels/ops/attention/cudnn_forward.h"
#include "kernels/ops/attention/simt_attention.h"
#include "kernels/ops/attention/wgmma_backward.h"
#include "kernels/ops/cuda_form.h"

namespace weft::ops {
namespace {

bool IsEmpty(const AttentionShape& s) {
  return s.tokens() == 0 || s.num_heads == 0 || s.head_dim == 0;
}

void Forward(const AttentionForwardArgs& args, device::Stream& stream) {
  if (IsEmpty(args.shape)) return;
  if (args.out.dtype == DType::kBf16 && internal::IsForCudnn(args.shape)) {
    internal::CudnnForward(args, stream);
  } else {
    internal::SimtForward(args, stream);
  }
}

void Backward(const AttentionBackwardArgs& args, device::Stream& stream) {
  if (IsEmpty(args.shape)) return;
  if (args.d_qkv.dtype == DType::kBf16 && internal::IsForWgmma(args.shape)) {
    internal::WgmmaBackward(args, stream);
  } else {
    internal::SimtBackward(args, stream);
  }
}

[[maybe_unused]] const bool kForward =
    RegisterCudaForm<&AttentionForward>(&Forward);
[[maybe_unused]] const bool kBackward =
    RegisterCudaForm<&AttentionBackward>(&Backward);

}  // namespace
}  // namespace weft::ops
