#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/fold.cuh"
#include "kernels/ops/sum_squares/sum_squares.h"

namespace weft::ops {
namespace {

// Elements that a thread takes at a time, in either format.
constexpr int kRun = 8;

// Requires: `x` is aligned to 16 bytes.
template <typename T>
__device__ void LoadRun(const T* x, float (&out)[kRun]) {
  constexpr int kVector = cuda::kVector<T>;
#pragma unroll
  for (int i = 0; i < kRun; i += kVector) {
    cuda::LoadVector(x + i, reinterpret_cast<float(&)[kVector]>(out[i]));
  }
}

template <typename T>
__device__ void LoadSome(const T* x, int64_t count, float (&out)[kRun]) {
#pragma unroll
  for (int i = 0; i < kRun; ++i) out[i] = i < count ? cuda::Load(x + i) : 0.0f;
}

// partials[block] = the sum of what the block takes: runs of kRun elements,
// gridDim.x * kFoldThreads runs apart.
template <typename T>
__global__ void __launch_bounds__(cuda::kFoldThreads)
    SumParts(const T* x, int64_t count, bool aligned, double* partials) {
  const int64_t stride = int64_t{gridDim.x} * cuda::kFoldThreads * kRun;
  int64_t i = (int64_t{blockIdx.x} * cuda::kFoldThreads + threadIdx.x) * kRun;
  double even = 0;
  double odd = 0;
  for (; i < count; i += stride) {
    float run[kRun];
    if (aligned && i + kRun <= count) {
      LoadRun(x + i, run);
    } else {
      LoadSome(x + i, count - i, run);
    }
#pragma unroll
    for (int j = 0; j < kRun; j += 2) {
      even =
          fma(static_cast<double>(run[j]), static_cast<double>(run[j]), even);
      odd = fma(static_cast<double>(run[j + 1]),
                static_cast<double>(run[j + 1]), odd);
    }
  }
  const double sum = cuda::FoldBlock(even + odd, cuda::Plus());
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

struct WriteSum {
  double* out;
  bool accumulate;
  __device__ void operator()(double sum) const {
    *out = accumulate ? *out + sum : sum;
  }
};

void Run(const SumSquaresArgs& args, device::Stream& stream) {
  if (args.count == 0 && args.accumulate) return;
  const int64_t blocks = cuda::FoldBlocks(args.count, kRun);
  auto* partials = static_cast<double*>(
      device::cuda::Workspace(stream, blocks * sizeof(double)));
  if (partials == nullptr) return;
  cuda::WithElementType(args.x.dtype, [&](auto type) {
    SumParts<<<blocks, cuda::kFoldThreads, 0, device::cuda::Handle(stream)>>>(
        cuda::Elements<decltype(type)>(args.x), args.count,
        cuda::IsAligned(args.x.data), partials);
  });
  device::cuda::CheckLaunch("SumSquares", stream);
  cuda::Fold(partials, blocks, 0.0, cuda::Plus(),
             WriteSum{args.out, args.accumulate}, stream);
}

[[maybe_unused]] const bool kRegistered = RegisterCudaForm<&SumSquares>(&Run);

}  // namespace
}  // namespace weft::ops
