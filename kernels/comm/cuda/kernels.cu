#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/comm/cuda/kernels.h"

namespace weft::comm::cuda {
namespace {

constexpr int kThreads = 256;
// Enough blocks to fill the memory's pipe; few enough to leave multiprocessors
// to what runs beside.
constexpr int64_t kMaxBlocks = 512;

// An element as it is summed up, and the sum as an element.
__device__ float Widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ float Widen(float x) { return x; }
__device__ double Widen(double x) { return x; }
__device__ void Narrow(float sum, __nv_bfloat16* out) {
  *out = __float2bfloat16_rn(sum);
}
template <typename T>
__device__ void Narrow(T sum, T* out) {
  *out = sum;
}

// What a thread loads at once.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T values[kWidth];
};

// Elements of type T, summed up as type Sum, kWidth of them a thread at a time.
template <typename T, typename Sum, int kWidth>
__global__ void __launch_bounds__(kThreads)
    SumKernel(RankSlices slices, T* out) {
  using Packed = Pack<T, kWidth>;
  const int64_t packs = slices.elements / kWidth;
  const auto* const own = static_cast<const Packed*>(slices.own);
  const auto* const others = static_cast<const Packed*>(slices.others);
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < packs;
       i += stride) {
    Sum sum[kWidth];
    for (int r = 0; r < slices.size; ++r) {
      const Packed* const slice =
          r == slices.rank ? own
                           : others + (r > slices.rank ? r - 1 : r) * packs;
      const Packed next = slice[i];
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const Sum value = Widen(next.values[k]);
        sum[k] = r == 0 ? value : sum[k] + value;
      }
    }
    Packed result;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) Narrow(sum[k], &result.values[k]);
    reinterpret_cast<Packed*>(out)[i] = result;
  }
}

int64_t BlocksFor(int64_t threads) {
  return std::clamp<int64_t>((threads + kThreads - 1) / kThreads, 1,
                             kMaxBlocks);
}

bool IsAligned(const void* pointer, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

template <typename T, typename Sum>
cudaError_t LaunchSum(const RankSlices& slices, void* out,
                      cudaStream_t stream) {
  constexpr int kWidth = 16 / sizeof(T);
  T* const to = static_cast<T*>(out);
  if (slices.elements % kWidth == 0 && IsAligned(slices.others, 16) &&
      IsAligned(slices.own, 16) && IsAligned(out, 16)) {
    SumKernel<T, Sum, kWidth>
        <<<BlocksFor(slices.elements / kWidth), kThreads, 0, stream>>>(slices,
                                                                       to);
  } else {
    SumKernel<T, Sum, 1>
        <<<BlocksFor(slices.elements), kThreads, 0, stream>>>(slices, to);
  }
  return cudaGetLastError();
}

// As many as the parameters of a kernel hold.
constexpr int kBatch = 128;
struct PieceBatch {
  CopyPiece pieces[kBatch];
};

template <typename T>
__device__ void CopyAs(const void* from, void* to, int64_t bytes) {
  const int64_t count = bytes / sizeof(T);
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += stride) {
    static_cast<T*>(to)[i] = static_cast<const T*>(from)[i];
  }
}

__global__ void __launch_bounds__(kThreads)
    CopyKernel(const char* from, char* to,
               const __grid_constant__ PieceBatch batch) {
  const CopyPiece& piece = batch.pieces[blockIdx.y];
  const char* const source = from + piece.from;
  char* const target = to + piece.to;
  const uintptr_t all = reinterpret_cast<uintptr_t>(source) |
                        reinterpret_cast<uintptr_t>(target) |
                        static_cast<uintptr_t>(piece.bytes);
  if (all % 16 == 0) {
    CopyAs<uint4>(source, target, piece.bytes);
  } else if (all % 4 == 0) {
    CopyAs<unsigned>(source, target, piece.bytes);
  } else {
    CopyAs<char>(source, target, piece.bytes);
  }
}

}  // namespace

cudaError_t SumInRankOrder(const RankSlices& slices, SumType type, void* out,
                           cudaStream_t stream) {
  if (slices.elements == 0) return cudaSuccess;
  switch (type) {
    case SumType::kF64:
      return LaunchSum<double, double>(slices, out, stream);
    case SumType::kBf16:
      return LaunchSum<__nv_bfloat16, float>(slices, out, stream);
    case SumType::kF32:
      break;
  }
  return LaunchSum<float, float>(slices, out, stream);
}

cudaError_t CopyPieces(const void* from, void* to, const CopyPiece* pieces,
                       int64_t count, cudaStream_t stream) {
  for (int64_t begin = 0; begin < count; begin += kBatch) {
    const int64_t size = std::min<int64_t>(kBatch, count - begin);
    PieceBatch batch;
    int64_t longest = 0;
    for (int64_t i = 0; i < size; ++i) {
      batch.pieces[i] = pieces[begin + i];
      longest = std::max(longest, batch.pieces[i].bytes);
    }
    if (longest == 0) continue;
    const int64_t blocks = std::min<int64_t>(
        BlocksFor(longest / 16), std::max<int64_t>(1, kMaxBlocks / size));
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(size));
    CopyKernel<<<grid, kThreads, 0, stream>>>(static_cast<const char*>(from),
                                              static_cast<char*>(to), batch);
  }
  return cudaGetLastError();
}

}  // namespace weft::comm::cuda
