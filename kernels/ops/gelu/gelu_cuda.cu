#include "kernels/ops/cuda_form.h"
#include "kernels/ops/gelu/gelu.h"
#include "kernels/ops/math/activation.cuh"

namespace weft::ops {
namespace {

struct Gelu {
  static __device__ float Value(float x) { return x * normcdff(x); }

  static __device__ void ValueAndSlope(float x, float* value, float* slope) {
    const float cdf = normcdff(x);
    const float pdf = expf(-0.5f * x * x) * 0.398942280401432678f;
    *value = x * cdf;
    *slope = fmaf(x, pdf, cdf);
  }
};

void Forward(const GeluForwardArgs& args, device::Stream& stream) {
  cuda::RunActivation<Gelu>(args, "GeluForward", stream);
}

void Backward(const GeluBackwardArgs& args, device::Stream& stream) {
  cuda::RunActivationGrad<Gelu>(args, "GeluBackward", stream);
}

[[maybe_unused]] const bool kForward = RegisterCudaForm<&GeluForward>(&Forward);
[[maybe_unused]] const bool kBackward =
    RegisterCudaForm<&GeluBackward>(&Backward);

}  // namespace
}  // namespace weft::ops
