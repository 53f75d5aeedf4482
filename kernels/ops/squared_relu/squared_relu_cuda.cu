#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/activation.cuh"
#include "kernels/ops/squared_relu/squared_relu.h"

namespace weft::ops {
namespace {

struct SquaredRelu {
  // NaN stays NaN.
  static __device__ float Relu(float x) { return x < 0.0f ? 0.0f : x; }

  static __device__ float Value(float x) { return Relu(x) * Relu(x); }

  static __device__ void ValueAndSlope(float x, float* value, float* slope) {
    const float r = Relu(x);
    *value = r * r;
    *slope = r + r;
  }
};

void Forward(const SquaredReluForwardArgs& args, device::Stream& stream) {
  cuda::RunActivation<SquaredRelu>(args, "SquaredReluForward", stream);
}

void Backward(const SquaredReluBackwardArgs& args, device::Stream& stream) {
  cuda::RunActivationGrad<SquaredRelu>(args, "SquaredReluBackward", stream);
}

[[maybe_unused]] const bool kForward =
    RegisterCudaForm<&SquaredReluForward>(&Forward);
[[maybe_unused]] const bool kBackward =
    RegisterCudaForm<&SquaredReluBackward>(&Backward);

}  // namespace
}  // namespace weft::ops
