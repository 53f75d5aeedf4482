// How an op finds its CUDA form.
//
// An op is one function to whoever calls it. Its CPU form runs it on a CPU
// stream; on a CUDA stream it hands over to the form that a `_cuda.cu` file has
// registered, if the binary links that file:
//
//   // swiglu_cpu.cc
//   void SwigluForward(const SwigluForwardArgs& args, device::Stream& stream) {
//     if (RunOnCuda<&SwigluForward>(args, stream)) return;
//     ...
//   // swiglu_cuda.cu
//   [[maybe_unused]] const bool kForward =
//       RegisterCudaForm<&SwigluForward>(&Forward);
#ifndef WEFT_KERNELS_OPS_CUDA_FORM_H_
#define WEFT_KERNELS_OPS_CUDA_FORM_H_

#include "kernels/device/backend.h"
#include "kernels/ops/stream.h"

namespace weft::ops {
namespace internal {

template <auto kOp>
struct CudaForm {
  static inline decltype(kOp) run = nullptr;
};

// Ends the process: the binary lacks the CUDA form of `op`.
[[noreturn]] void DieWithoutForm(const char* op);

}  // namespace internal

// Called before main().
template <auto kOp>
bool RegisterCudaForm(decltype(kOp) run) {
  internal::CudaForm<kOp>::run = run;
  return true;
}

// Runs the CUDA form when `stream` is one of CUDA; false: it is not. Requires:
// who makes CUDA streams links the CUDA forms of the ops it calls.
template <auto kOp, typename Args>
bool RunOnCuda(const Args& args, device::Stream& stream) {
  if (device::BackendOf(stream) != device::Backend::kCuda) return false;
  const auto run = internal::CudaForm<kOp>::run;
  if (run == nullptr) internal::DieWithoutForm(__PRETTY_FUNCTION__);
  run(args, stream);
  return true;
}

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_CUDA_FORM_H_
