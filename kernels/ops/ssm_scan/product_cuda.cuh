// Many small products whose operands are computed as they are read.
//
//   c[i, j] = sum over segments of weight(i, j) * sum_k left(i, k) right(k, j)
//
// A block computes 64 x 64 elements of one product; k runs upwards, then the
// segments. A type P says what is computed:
//
//   s                                     SsmScanShape
//   Parts(), MaxRows(), MaxColumns()      on the host: heads or groups of a
//                                         chunk, and the largest product
//   Rows(at), Columns(at)                 of the product at a ChunkPart
//   Segments(), Depth(at, segment)
//   Left(at, segment, i, k)
//   Right(at, segment, k, j)
//   Weight(at, segment, i, j)
//   Write(at, i, j, value)
#ifndef WEFT_KERNELS_OPS_SSM_SCAN_PRODUCT_CUDA_CUH_
#define WEFT_KERNELS_OPS_SSM_SCAN_PRODUCT_CUDA_CUH_

#include <cstdint>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/math/cuda.cuh"
#include "kernels/ops/ssm_scan/chunks_cuda.cuh"

namespace weft::ops::internal {

inline constexpr int kTile = 64;       // rows and columns of a block
inline constexpr int kTileDepth = 16;  // of k at a time
inline constexpr int kTileSide = 16;   // threads along each side
inline constexpr int kOwn = kTile / kTileSide;
inline constexpr int kTileThreads = kTileSide * kTileSide;

template <typename P>
struct ProductTile {
  const P& p;
  const ChunkPart at;
  const int64_t row = int64_t{blockIdx.y} * kTile;
  const int64_t column = int64_t{blockIdx.z} * kTile;
  const int64_t rows = p.Rows(at);
  const int64_t columns = p.Columns(at);

  __device__ bool IsEmpty() const { return row >= rows || column >= columns; }
  // Elements of this thread.
  __device__ int64_t RowOf(int a) const {
    return row + threadIdx.x / kTileSide + a * kTileSide;
  }
  __device__ int64_t ColumnOf(int b) const {
    return column + threadIdx.x % kTileSide + b * kTileSide;
  }

  __device__ void Load(int segment, int64_t k, int64_t depth,
                       float (&left)[kTileDepth][kTile + 1],
                       float (&right)[kTileDepth][kTile]) const {
    for (int e = threadIdx.x; e < kTile * kTileDepth; e += kTileThreads) {
      const int left_k = e % kTileDepth;
      const int left_i = e / kTileDepth;
      const bool has_left = row + left_i < rows && k + left_k < depth;
      left[left_k][left_i] =
          has_left ? p.Left(at, segment, row + left_i, k + left_k) : 0.0f;
      const int right_j = e % kTile;
      const int right_k = e / kTile;
      const bool has_right = column + right_j < columns && k + right_k < depth;
      right[right_k][right_j] =
          has_right ? p.Right(at, segment, k + right_k, column + right_j)
                    : 0.0f;
    }
  }

  // Adds a segment's weighted product to `total`. All threads take part.
  __device__ void AddSegment(int segment, float (&total)[kOwn][kOwn]) const {
    __shared__ float left[kTileDepth][kTile + 1];
    __shared__ float right[kTileDepth][kTile];
    const int64_t depth = p.Depth(at, segment);
    float part[kOwn][kOwn] = {};
    for (int64_t k = 0; k < depth; k += kTileDepth) {
      Load(segment, k, depth, left, right);
      __syncthreads();
#pragma unroll
      for (int step = 0; step < kTileDepth; ++step) {
#pragma unroll
        for (int a = 0; a < kOwn; ++a) {
          const float l = left[step][threadIdx.x / kTileSide + a * kTileSide];
#pragma unroll
          for (int b = 0; b < kOwn; ++b) {
            const float r =
                right[step][threadIdx.x % kTileSide + b * kTileSide];
            part[a][b] = fmaf(l, r, part[a][b]);
          }
        }
      }
      __syncthreads();
    }
    ForEachOwn([&](int a, int b) {
      const float weight = p.Weight(at, segment, RowOf(a), ColumnOf(b));
      total[a][b] = fmaf(weight, part[a][b], total[a][b]);
    });
  }

  template <typename F>
  __device__ void ForEachOwn(F f) const {
#pragma unroll
    for (int a = 0; a < kOwn; ++a) {
#pragma unroll
      for (int b = 0; b < kOwn; ++b) {
        if (RowOf(a) < rows && ColumnOf(b) < columns) f(a, b);
      }
    }
  }
};

template <typename P>
__global__ void __launch_bounds__(kTileThreads)
    ProductKernel(const P p, int64_t parts) {
  const ProductTile<P> tile = {p, ChunkPart(p.s, blockIdx.x, parts)};
  if (tile.IsEmpty()) return;
  float total[kOwn][kOwn] = {};
  for (int segment = 0; segment < p.Segments(); ++segment) {
    tile.AddSegment(segment, total);
  }
  tile.ForEachOwn([&](int a, int b) {
    p.Write(tile.at, tile.RowOf(a), tile.ColumnOf(b), total[a][b]);
  });
}

// Requires: there are tokens.
template <typename P>
void RunProduct(const P& p, device::Stream& stream) {
  const dim3 grid(p.s.batch * p.s.chunks() * p.Parts(),
                  cuda::CeilDiv(p.MaxRows(), kTile),
                  cuda::CeilDiv(p.MaxColumns(), kTile));
  ProductKernel<<<grid, kTileThreads, 0, device::cuda::Handle(stream)>>>(
      p, p.Parts());
  device::cuda::CheckLaunch("SsmScan product", stream);
}

}  // namespace weft::ops::internal

#endif  // WEFT_KERNELS_OPS_SSM_SCAN_PRODUCT_CUDA_CUH_
