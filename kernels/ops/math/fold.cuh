// Sums and the like of long ranges, in two kernels: every block combines its
// part to one partial result, then one block folds the partial results. Parts
// and orders follow from sizes alone.
#ifndef WEFT_KERNELS_OPS_MATH_FOLD_CUH_
#define WEFT_KERNELS_OPS_MATH_FOLD_CUH_

#include <algorithm>
#include <cstdint>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/math/cuda.cuh"

namespace weft::ops::cuda {

inline constexpr int kFoldThreads = 256;
// Blocks that share a range; eight for each multiprocessor of an H200.
inline constexpr int64_t kFoldBlocks = 1056;

// Blocks for a range of which each thread takes `per_thread` at a time.
inline int64_t FoldBlocks(int64_t count, int64_t per_thread) {
  return std::min(
      kFoldBlocks,
      std::max<int64_t>(1, CeilDiv(count, per_thread * kFoldThreads)));
}

struct Plus {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Or {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a | b;
  }
};
struct Least {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

// The values of the kFoldThreads threads of a block, combined; the result is
// that of thread 0. All threads take part, once in a kernel.
template <typename T, typename Combine>
__device__ inline T FoldBlock(T value, Combine combine) {
  constexpr int kWarps = kFoldThreads / 32;
  __shared__ T of_warp[kWarps];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    value = combine(value, __shfl_down_sync(0xFFFFFFFFu, value, step));
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x != 0) return value;
#pragma unroll
  for (int w = 1; w < kWarps; ++w) value = combine(value, of_warp[w]);
  return value;
}

// write(the partial results, combined). One block of kFoldThreads.
template <typename T, typename Combine, typename Write>
__global__ void FoldPartials(const T* partials, int64_t count, T identity,
                             Combine combine, Write write) {
  T value = identity;
  for (int64_t i = threadIdx.x; i < count; i += kFoldThreads) {
    value = combine(value, partials[i]);
  }
  value = FoldBlock(value, combine);
  if (threadIdx.x == 0) write(value);
}

template <typename T, typename Combine, typename Write>
void Fold(const T* partials, int64_t count, T identity, Combine combine,
          Write write, device::Stream& stream) {
  FoldPartials<<<1, kFoldThreads, 0, device::cuda::Handle(stream)>>>(
      partials, count, identity, combine, write);
  device::cuda::CheckLaunch("FoldPartials", stream);
}

inline constexpr int kRowLanes = 32;

// Into how many chunks of `chunk` rows SumRows cuts `rows`; no rows are one
// chunk, whose sum is 0.
inline int64_t Chunks(int64_t rows, int64_t chunk) {
  return std::max<int64_t>(1, CeilDiv(rows, chunk));
}

// Sums of rows. Of a matrix [groups * rows, columns] every chunk of `chunk`
// rows of a group is summed: sums[group * chunks + i][column], where chunks =
// Chunks(rows, chunk). Row r of a chunk goes to lane r % kRowLanes, lanes are
// added in order. A block of 32 x kRowLanes threads sums 32 columns of a chunk.
template <typename From, typename Sum>
__global__ void SumRowsKernel(const From* x, int64_t rows, int64_t columns,
                              int64_t chunk, int64_t chunks, Sum* sums) {
  __shared__ Sum of_lane[kRowLanes][32];
  const int64_t column = int64_t{blockIdx.y} * 32 + threadIdx.x;
  const int64_t group = blockIdx.x / chunks;
  const int64_t begin = blockIdx.x % chunks * chunk;
  const int64_t end = begin + chunk < rows ? begin + chunk : rows;
  Sum sum = 0;
  if (column < columns) {
    const From* from = x + group * rows * columns + column;
#pragma unroll 4
    for (int64_t row = begin + threadIdx.y; row < end; row += kRowLanes) {
      sum += from[row * columns];
    }
  }
  of_lane[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int lane = 1; lane < kRowLanes; ++lane) {
    sum += of_lane[lane][threadIdx.x];
  }
  sums[blockIdx.x * columns + column] = sum;
}

template <typename From, typename Sum>
void SumRows(const From* x, int64_t groups, int64_t rows, int64_t columns,
             int64_t chunk, Sum* sums, device::Stream& stream) {
  if (groups * columns == 0) return;
  const int64_t chunks = Chunks(rows, chunk);
  const dim3 grid(groups * chunks, CeilDiv(columns, 32));
  SumRowsKernel<<<grid, dim3(32, kRowLanes), 0, device::cuda::Handle(stream)>>>(
      x, rows, columns, chunk, chunks, sums);
  device::cuda::CheckLaunch("SumRows", stream);
}

}  // namespace weft::ops::cuda

#endif  // WEFT_KERNELS_OPS_MATH_FOLD_CUH_
