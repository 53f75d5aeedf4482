// Writes what Wgmma64x256x16 leaves in the registers of a warpgroup.
#ifndef WEFT_KERNELS_OPS_GEMM_WGMMA_STORE_CUH_
#define WEFT_KERNELS_OPS_GEMM_WGMMA_STORE_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/ops/gemm/hopper.cuh"
#include "kernels/ops/gemm/product_cuda.cuh"

namespace weft::ops::internal {

constexpr int kWgmmaColumns = 256;

__device__ inline void Swap(bool first, uint32_t& a, uint32_t& b,
                            int lane_mask) {
  const uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, first ? a : b, lane_mask);
  if (first) {
    a = got;
  } else {
    b = got;
  }
}

// Of four lanes in a row, lane q holds pair q of four blocks of eight columns;
// then it holds the four pairs of block q.
__device__ inline void TransposeQuad(uint32_t (&pairs)[4]) {
  const int q = threadIdx.x % 4;
  Swap((q & 1) != 0, pairs[0], pairs[1], 1);
  Swap((q & 1) != 0, pairs[2], pairs[3], 1);
  Swap((q & 2) != 0, pairs[0], pairs[2], 2);
  Swap((q & 2) != 0, pairs[1], pairs[3], 2);
}

__device__ inline uint32_t AddPairs(uint32_t c, uint32_t value) {
  const auto x = reinterpret_cast<const __nv_bfloat162&>(c);
  const auto y = reinterpret_cast<const __nv_bfloat162&>(value);
  const __nv_bfloat162 sum = {AddTo(x.x, y.x), AddTo(x.y, y.y)};
  return reinterpret_cast<const uint32_t&>(sum);
}

__device__ inline uint32_t RoundPair(float alpha, float x, float y) {
  const __nv_bfloat162 pair =
      __floats2bfloat162_rn(__fmul_rn(alpha, x), __fmul_rn(alpha, y));
  return reinterpret_cast<const uint32_t&>(pair);
}

// Of blocks `block` .. `block` + 3, the eight columns that this lane writes.
__device__ inline uint4 BlockOfQuad(float alpha, int block, bool second,
                                    const float (&sums)[128]) {
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int at = 4 * (block + i) + (second ? 2 : 0);
    pairs[i] = RoundPair(alpha, sums[at], sums[at + 1]);
  }
  TransposeQuad(pairs);
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// One row of a thread's sums (`second`: the one 8 further) to `row` of C, whose
// `columns` are a multiple of 8. Without `write` only the exchange.
//
// Elements of C are read in batches: stores that depend on a read keep later
// reads from being issued.
__device__ inline void StoreRow(const GemmArgs& g, bool write,
                                __nv_bfloat16* row, int columns, bool second,
                                const float (&sums)[128]) {
  constexpr int kBatch = 4;
  const int q = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < kWgmmaColumns / 32; j += kBatch) {
    uint4 c[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int column = 32 * (j + i) + 8 * q;
      if (g.accumulate && write && column < columns) {
        c[i] = *reinterpret_cast<const uint4*>(row + column);
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int column = 32 * (j + i) + 8 * q;
      uint4 value = BlockOfQuad(g.alpha, 4 * (j + i), second, sums);
      if (g.accumulate) {
        value =
            make_uint4(AddPairs(c[i].x, value.x), AddPairs(c[i].y, value.y),
                       AddPairs(c[i].z, value.z), AddPairs(c[i].w, value.w));
      }
      if (write && column < columns) {
        *reinterpret_cast<uint4*>(row + column) = value;
      }
    }
  }
}

__device__ inline void StoreRow(const GemmArgs& g, bool write, float* row,
                                int columns, bool second,
                                const float (&sums)[128]) {
  constexpr int kBatch = 16;
  const int q = threadIdx.x % 4;
  if (!write) return;
#pragma unroll
  for (int j = 0; j < kWgmmaColumns / 8; j += kBatch) {
    float2 c[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int column = 8 * (j + i) + 2 * q;
      if (g.accumulate && column < columns) {
        c[i] = *reinterpret_cast<const float2*>(row + column);
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int column = 8 * (j + i) + 2 * q;
      const int at = 4 * (j + i) + (second ? 2 : 0);
      float2 value = make_float2(__fmul_rn(g.alpha, sums[at]),
                                 __fmul_rn(g.alpha, sums[at + 1]));
      if (g.accumulate) {
        value = make_float2(AddTo(c[i].x, value.x), AddTo(c[i].y, value.y));
      }
      if (column < columns) *reinterpret_cast<float2*>(row + column) = value;
    }
  }
}

// Brings the part of C that StoreTile will add to near, while the sum runs.
template <typename T>
__device__ void PrefetchTile(const Product& p, const ProductTile& t, int half) {
  constexpr int kElements = 128 / sizeof(T);  // of a line of the cache
  constexpr int kLines = kWgmmaColumns / kElements;
  const GemmArgs& g = p.gemm;
  const T* const c =
      static_cast<const T*>(g.c.data) + GroupOffsetC(p, t) + t.column;
  for (int i = threadIdx.x % 128; i < 64 * kLines; i += 128) {
    const int64_t row = t.row + 64 * half + i / kLines;
    const int column = i % kLines * kElements;
    if (row < t.rows && t.column + column < g.n) {
      PrefetchToL2(c + row * g.ldc + column);
    }
  }
}

template <typename T>
__device__ void StoreTile(const Product& p, const ProductTile& t, int half,
                          const float (&sums)[128]) {
  const GemmArgs& g = p.gemm;
  const int thread = threadIdx.x % 128;
  const int64_t row = t.row + 64 * half + thread / 32 * 16 + thread % 32 / 4;
  T* const c = static_cast<T*>(g.c.data) + GroupOffsetC(p, t) + t.column;
  const int columns =
      static_cast<int>(min(g.n - t.column, int64_t{kWgmmaColumns}));
  StoreRow(g, row < t.rows, c + row * g.ldc, columns, false, sums);
  StoreRow(g, row + 8 < t.rows, c + (row + 8) * g.ldc, columns, true, sums);
}

}  // namespace weft::ops::internal

#endif  // WEFT_KERNELS_OPS_GEMM_WGMMA_STORE_CUH_
