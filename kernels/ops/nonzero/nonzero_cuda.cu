#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/fold.cuh"
#include "kernels/ops/nonzero/nonzero.h"

namespace weft::ops {
namespace {

constexpr int kThreads = cuda::kFoldThreads;
constexpr int kVectorsAtOnce = 4;  // loads of 16 bytes in flight

// All bits of a word but the signs of the elements in it.
constexpr uint32_t Magnitudes(float) { return 0x7fffffffu; }
constexpr uint32_t Magnitudes(Bf16) { return 0x7fff7fffu; }

__device__ uint32_t Bits(const float* at) { return __float_as_uint(*at); }
__device__ uint32_t Bits(const Bf16* at) { return at->bits; }

// Whether the block finds a number other than zero in [begin, end), which
// begins at 16 bytes when `aligned`. Every thread gets the answer.
template <typename T>
__device__ bool Any(const T* x, int64_t begin, int64_t end, bool aligned) {
  constexpr int kVector = cuda::kVector<T>;
  uint32_t seen = 0;
  int64_t tail = begin;
  if (aligned) {
    const int64_t vectors = (end - begin) / kVector;
    const auto* from = reinterpret_cast<const uint4*>(x + begin);
#pragma unroll kVectorsAtOnce
    for (int64_t i = threadIdx.x; i < vectors; i += kThreads) {
      const uint4 v = from[i];
      seen |= v.x | v.y | v.z | v.w;
    }
    tail += vectors * kVector;
  }
  for (int64_t i = tail + threadIdx.x; i < end; i += kThreads) {
    seen |= Bits(x + i);
  }
  return __syncthreads_or((seen & Magnitudes(T())) != 0);
}

// Every block looks at the beginning of the range first: where a number is
// found there, as in most gradients, nothing else is read. Then chunk i is for
// block i % gridDim.x.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    Scan(const T* x, int64_t count, bool aligned, uint32_t* out) {
  constexpr int64_t kChunk =
      int64_t{kThreads} * kVectorsAtOnce * cuda::kVector<T>;
  const auto found_in = [&](int64_t chunk) {
    const int64_t begin = chunk * kChunk;
    const int64_t end = begin + kChunk < count ? begin + kChunk : count;
    return Any(x, begin, end, aligned);
  };
  bool found = found_in(0);
  if (found && blockIdx.x != 0) return;
  int64_t chunk = blockIdx.x == 0 ? gridDim.x : blockIdx.x;
  for (; !found && chunk * kChunk < count; chunk += gridDim.x) {
    found = found_in(chunk);
  }
  if (found && threadIdx.x == 0) *out = 1;
}

void Run(const HasNonZeroArgs& args, device::Stream& stream) {
  if (args.count == 0) return;
  cuda::WithElementType(args.dtype, [&](auto type) {
    using T = decltype(type);
    const int64_t blocks =
        cuda::FoldBlocks(args.count, kVectorsAtOnce * cuda::kVector<T>);
    Scan<<<blocks, kThreads, 0, device::cuda::Handle(stream)>>>(
        static_cast<const T*>(args.x), args.count, cuda::IsAligned(args.x),
        args.out);
  });
  device::cuda::CheckLaunch("HasNonZero", stream);
}

[[maybe_unused]] const bool kRegistered = RegisterCudaForm<&HasNonZero>(&Run);

}  // namespace
}  // namespace weft::ops
