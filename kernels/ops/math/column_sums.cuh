// Sums over the rows of a matrix, in fp64, as gradients of weights need them.
//
// Rows are cut into chunks. A block sums one chunk of up to 256 columns: each
// thread every so many-th row, then these threads in order; a second kernel
// sums the chunks. The cuts, and so the bits, depend on the sizes alone.
#ifndef WEFT_KERNELS_OPS_MATH_COLUMN_SUMS_CUH_
#define WEFT_KERNELS_OPS_MATH_COLUMN_SUMS_CUH_

#include <algorithm>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/math/pack.cuh"
#include "kernels/ops/stream.h"

namespace weft::ops::cuda {

inline constexpr int kSumThreads = 256;
inline constexpr int kSumBatch = 4;  // rows loaded at once

struct ColumnSumCuts {
  int lanes = 1;  // threads side by side, a pack of columns each
  int64_t column_blocks = 0;
  int64_t chunks = 0;
  int64_t rows_per_chunk = 0;
};

inline ColumnSumCuts CutColumnSum(int64_t rows, int64_t columns) {
  constexpr int64_t kBlocks = 396;  // three for each multiprocessor of an H200
  ColumnSumCuts cuts;
  while (cuts.lanes < 32 && cuts.lanes * kPack < columns) cuts.lanes *= 2;
  cuts.column_blocks = CeilDiv(columns, cuts.lanes * kPack);
  const int64_t rows_at_once = kSumThreads / cuts.lanes * kSumBatch;
  const int64_t chunks =
      std::min(std::max<int64_t>(kBlocks / cuts.column_blocks, 1),
               CeilDiv(rows, rows_at_once));
  if (chunks == 0) return cuts;
  cuts.rows_per_chunk = CeilDiv(rows, chunks);
  cuts.chunks = CeilDiv(rows, cuts.rows_per_chunk);
  return cuts;
}

// A Source says what is summed:
//   Loaded Load(row, column, left)   a pack, as memory has it
//   Floats Values(loaded)            its values
template <typename Source>
__global__ void __launch_bounds__(kSumThreads)
    SumChunk(const Source source, int64_t rows, int64_t columns,
             int64_t rows_per_chunk, double* partial) {
  using Loaded = typename Source::Loaded;
  const int64_t column =
      (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * kPack;
  const int64_t begin = blockIdx.x * rows_per_chunk;
  const int64_t end = min(begin + rows_per_chunk, rows);
  double sums[kPack] = {};
  if (column < columns) {
    const int64_t step = blockDim.y;
    for (int64_t row = begin + threadIdx.y; row < end;
         row += kSumBatch * step) {
      Loaded loaded[kSumBatch];
#pragma unroll
      for (int k = 0; k < kSumBatch; ++k) {
        if (row + k * step < end) {
          loaded[k] = source.Load(row + k * step, column, columns - column);
        }
      }
#pragma unroll
      for (int k = 0; k < kSumBatch; ++k) {
        if (row + k * step >= end) continue;
        const Floats values = source.Values(loaded[k]);
#pragma unroll
        for (int j = 0; j < kPack; ++j) sums[j] += values.v[j];
      }
    }
  }

  __shared__ double of_thread[kSumThreads * kPack];
  const int width = blockDim.x * kPack;  // columns of this block
  double* mine = of_thread + threadIdx.y * width + threadIdx.x * kPack;
#pragma unroll
  for (int j = 0; j < kPack; ++j) mine[j] = sums[j];
  __syncthreads();
  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * width;
  if (thread >= width || first + thread >= columns) return;
  double sum = 0;
  for (int y = 0; y < blockDim.y; ++y) sum += of_thread[y * width + thread];
  partial[blockIdx.x * columns + first + thread] = sum;
}

inline constexpr int kFinishColumns = 32;
inline constexpr int kFinishLanes = 32;

template <typename T>
__global__ void __launch_bounds__(kFinishColumns* kFinishLanes)
    SumChunks(const double* partial, int64_t chunks, int64_t columns,
              bool accumulate, T* to) {
  __shared__ double of_lane[kFinishLanes][kFinishColumns];
  const int64_t column =
      static_cast<int64_t>(blockIdx.x) * kFinishColumns + threadIdx.x;
  double sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int64_t chunk = threadIdx.y; chunk < chunks; chunk += kFinishLanes) {
      sum += partial[chunk * columns + column];
    }
  }
  of_lane[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int lane = 1; lane < kFinishLanes; ++lane) {
    sum += of_lane[lane][threadIdx.x];
  }
  WriteOrAdd(static_cast<float>(sum), accumulate, to + column);
}

// to[column] = sum over rows, or added to it; without rows the sum is zero.
template <typename Source>
void SumColumns(const Source& source, int64_t rows, int64_t columns,
                const Tensor& to, bool accumulate, device::Stream& stream) {
  if (columns == 0) return;
  const cudaStream_t handle = device::cuda::Handle(stream);
  const ColumnSumCuts cuts = CutColumnSum(rows, columns);
  double* partial = nullptr;
  if (cuts.chunks > 0) {
    partial = static_cast<double*>(device::cuda::Workspace(
        stream, cuts.chunks * columns * static_cast<int64_t>(sizeof(double))));
    if (partial == nullptr) return;
    const dim3 grid(cuts.chunks, cuts.column_blocks);
    const dim3 block(cuts.lanes, kSumThreads / cuts.lanes);
    SumChunk<<<grid, block, 0, handle>>>(source, rows, columns,
                                         cuts.rows_per_chunk, partial);
    device::cuda::CheckLaunch("SumChunk", stream);
  }
  WithElementType(to.dtype, [&](auto type) {
    using T = decltype(type);
    SumChunks<<<CeilDiv(columns, kFinishColumns),
                dim3(kFinishColumns, kFinishLanes), 0, handle>>>(
        partial, cuts.chunks, columns, accumulate, Elements<T>(to));
  });
  device::cuda::CheckLaunch("SumChunks", stream);
}

}  // namespace weft::ops::cuda

#endif  // WEFT_KERNELS_OPS_MATH_COLUMN_SUMS_CUH_
