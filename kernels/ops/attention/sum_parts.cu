#include <cuda_runtime.h>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/attention/sum_parts.h"
#include "kernels/ops/math/cuda.cuh"

namespace weft::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kVector = cuda::kVector<Bf16>;

__global__ void __launch_bounds__(kThreads) SumKernel(const SumPartsArgs args) {
  const int64_t vector = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t at = vector * kVector;
  const int64_t elements = args.rows * args.columns;
  if (at >= elements) return;
  float sums[kVector] = {};
  for (int64_t p = 0; p < args.count; ++p) {
    float values[kVector];
    cuda::LoadVector(args.parts + p * elements + at, values);
#pragma unroll
    for (int i = 0; i < kVector; ++i) sums[i] += values[i];
  }
  cuda::StoreVector(
      args.out + at / args.columns * args.width + at % args.columns, sums);
}

}  // namespace

void SumParts(const SumPartsArgs& args, device::Stream& stream) {
  const int64_t vectors = args.rows * args.columns / kVector;
  SumKernel<<<cuda::CeilDiv(vectors, kThreads), kThreads, 0,
              device::cuda::Handle(stream)>>>(args);
  device::cuda::CheckLaunch("AttentionBackward sum", stream);
}

}  // namespace weft::ops
