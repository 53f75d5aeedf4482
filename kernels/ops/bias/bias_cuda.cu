#include "kernels/device/cuda/launch.h"
#include "kernels/ops/bias/bias.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/column_sums.cuh"
#include "kernels/ops/math/pack.cuh"

namespace weft::ops {
namespace {

using cuda::Elements;
using cuda::Floats;
using cuda::kPack;
using cuda::Pack;

constexpr int kThreads = 128;
constexpr int kRows = 8;  // of a thread

// A thread adds a pack of the bias to kRows rows.
template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(const BiasForwardArgs args) {
  const int64_t column =
      (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kPack;
  const int64_t left = args.columns - column;
  if (left <= 0) return;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kRows;
  T* y = Elements<T>(args.y) + first * args.columns + column;
  Pack<T> rows[kRows];
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    if (first + k >= args.rows) break;
    rows[k] = cuda::LoadPack<kAligned>(y + k * args.columns, left);
  }
  const Floats bias =
      Widen(cuda::LoadPack<kAligned>(Elements<T>(args.bias) + column, left));
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    if (first + k >= args.rows) break;
    Floats v = Widen(rows[k]);
#pragma unroll
    for (int j = 0; j < kPack; ++j) v.v[j] += bias.v[j];
    cuda::StoreFloats<kAligned>(v, y + k * args.columns, left);
  }
}

void Forward(const BiasForwardArgs& args, device::Stream& stream) {
  if (args.rows == 0 || args.columns == 0) return;
  const bool aligned =
      cuda::PacksAligned(args.columns, args.bias.data, args.y.data);
  const dim3 grid(cuda::CeilDiv(args.rows, kRows),
                  cuda::CeilDiv(args.columns, int64_t{kPack} * kThreads));
  cuda::WithFormat(args.y.dtype, aligned, [&](auto type, auto is_aligned) {
    ForwardKernel<decltype(type), is_aligned.value>
        <<<grid, kThreads, 0, device::cuda::Handle(stream)>>>(args);
  });
  device::cuda::CheckLaunch("BiasForward", stream);
}

template <typename T, bool kAligned>
struct WgradSource {
  const T* dy;
  int64_t columns;

  using Loaded = Pack<T>;

  __device__ Loaded Load(int64_t row, int64_t column, int64_t left) const {
    return cuda::LoadPack<kAligned>(dy + row * columns + column, left);
  }
  __device__ Floats Values(const Loaded& loaded) const { return Widen(loaded); }
};

void Wgrad(const BiasWgradArgs& args, device::Stream& stream) {
  const bool aligned = cuda::PacksAligned(args.columns, args.dy.data);
  cuda::WithFormat(args.dy.dtype, aligned, [&](auto type, auto is_aligned) {
    using T = decltype(type);
    const WgradSource<T, is_aligned.value> source = {Elements<T>(args.dy),
                                                     args.columns};
    cuda::SumColumns(source, args.rows, args.columns, args.dbias,
                     args.accumulate, stream);
  });
}

[[maybe_unused]] const bool kForward = RegisterCudaForm<&BiasForward>(&Forward);
[[maybe_unused]] const bool kWgrad = RegisterCudaForm<&BiasWgrad>(&Wgrad);

}  // namespace
}  // namespace weft::ops
