// What the kernels of product_cuda.h share: the tiles of C that blocks take,
// and how an element of C is written.
#ifndef WEFT_KERNELS_OPS_GEMM_PRODUCT_CUDA_CUH_
#define WEFT_KERNELS_OPS_GEMM_PRODUCT_CUDA_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/ops/gemm/product_cuda.h"

namespace weft::ops::internal {

__host__ __device__ inline int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// A tile of one group's C.
struct ProductTile {
  int64_t group;
  int64_t first;  // row of the ragged matrices at which the group begins
  int64_t row;    // of the tile in the group's C
  int64_t column;
  int64_t rows;   // of the group's C
  int64_t depth;  // of the group's product
};

// All tiles of all groups, in an order that keeps what neighbours read near:
// bands of kBand tiles high, column after column.
template <int kRows, int kColumns>
class TileWalk {
 public:
  // `offsets` are those of `product`, where the caller has them.
  __device__ TileWalk(const Product& product, const int64_t* offsets)
      : product_(product),
        offsets_(offsets),
        column_tiles_(static_cast<int>(CeilDiv(product.gemm.n, kColumns))) {}

  // Finds tile `index`; false: there are fewer. Asked in ascending order.
  __device__ bool Find(int64_t index, ProductTile* tile) {
    for (; group_ < product_.groups; ++group_) {
      SetGroup(tile);
      const int64_t tiles = CeilDiv(tile->rows, kRows) * column_tiles_;
      if (index < begin_ + tiles) {
        Place(static_cast<int>(index - begin_), tile);
        return true;
      }
      begin_ += tiles;
    }
    return false;
  }

 private:
  static constexpr int kBand = 16;

  __device__ void SetGroup(ProductTile* tile) const {
    const GemmArgs& g = product_.gemm;
    tile->group = group_;
    tile->first = 0;
    tile->rows = g.m;
    tile->depth = g.k;
    if (product_.ragged == Ragged::kNone) return;
    tile->first = offsets_[group_];
    const int64_t size = offsets_[group_ + 1] - tile->first;
    if (product_.ragged == Ragged::kRows) tile->rows = size;
    if (product_.ragged == Ragged::kDepth) tile->depth = size;
  }

  __device__ void Place(int index, ProductTile* tile) const {
    const int row_tiles = static_cast<int>(CeilDiv(tile->rows, kRows));
    const int band = index / (kBand * column_tiles_);
    const int height = min(kBand, row_tiles - band * kBand);
    const int rest = index - band * kBand * column_tiles_;
    tile->row = int64_t{band * kBand + rest % height} * kRows;
    tile->column = int64_t{rest / height} * kColumns;
  }

  const Product& product_;
  const int64_t* offsets_;
  int column_tiles_;
  int64_t group_ = 0;
  int64_t begin_ = 0;  // first tile of the group
};

// First elements of a tile's group.
__device__ inline int64_t GroupOffsetA(const Product& p, const ProductTile& t) {
  return t.first * p.gemm.lda;
}
__device__ inline int64_t GroupOffsetB(const Product& p, const ProductTile& t) {
  return p.ragged == Ragged::kDepth ? t.first * p.gemm.ldb : t.group * p.stride;
}
__device__ inline int64_t GroupOffsetC(const Product& p, const ProductTile& t) {
  return p.ragged == Ragged::kDepth ? t.group * p.stride : t.first * p.gemm.ldc;
}

__device__ inline float AddTo(float c, float value) {
  return __fadd_rn(c, value);
}
// Both roundings of `accumulate`.
__device__ inline __nv_bfloat16 AddTo(__nv_bfloat16 c, __nv_bfloat16 value) {
  return __float2bfloat16_rn(
      __fadd_rn(__bfloat162float(c), __bfloat162float(value)));
}

// c = value, or c + value. Requires: `value` is a product that the compiler
// cannot fuse into the sum (__fmul_rn).
__device__ inline void Put(const Tensor& c, int64_t index, bool accumulate,
                           float value) {
  if (c.dtype == DType::kF32) {
    float& at = static_cast<float*>(c.data)[index];
    at = accumulate ? AddTo(at, value) : value;
  } else {
    __nv_bfloat16& at = static_cast<__nv_bfloat16*>(c.data)[index];
    const __nv_bfloat16 rounded = __float2bfloat16_rn(value);
    at = accumulate ? AddTo(at, rounded) : rounded;
  }
}

// `columns` of four elements from `index` on; the rest are zeros.
__device__ inline float4 ReadFour(const Tensor& c, int64_t index,
                                  bool is_vector, int columns) {
  if (is_vector && columns == 4) {
    if (c.dtype == DType::kF32) {
      return *reinterpret_cast<const float4*>(
          static_cast<const float*>(c.data) + index);
    }
    const uint2 pairs = *reinterpret_cast<const uint2*>(
        static_cast<const __nv_bfloat16*>(c.data) + index);
    const float2 low =
        __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pairs.x));
    const float2 high =
        __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pairs.y));
    return make_float4(low.x, low.y, high.x, high.y);
  }
  float values[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i >= columns) continue;
    values[i] = c.dtype == DType::kF32
                    ? static_cast<const float*>(c.data)[index + i]
                    : __bfloat162float(
                          static_cast<const __nv_bfloat16*>(c.data)[index + i]);
  }
  return make_float4(values[0], values[1], values[2], values[3]);
}

// c = value, or `old` + value with both roundings of `accumulate`, for
// `columns` of four elements from `index` on. `value` as for Put.
__device__ inline void PutFour(const Tensor& c, int64_t index, bool is_vector,
                               int columns, bool accumulate, const float4& old,
                               const float4& value) {
  float values[4] = {value.x, value.y, value.z, value.w};
  const float olds[4] = {old.x, old.y, old.z, old.w};
  const bool is_f32 = c.dtype == DType::kF32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (!accumulate) continue;
    values[i] = AddTo(
        olds[i],
        is_f32 ? values[i] : __bfloat162float(__float2bfloat16_rn(values[i])));
  }
  if (is_f32) {
    float* const at = static_cast<float*>(c.data) + index;
    if (is_vector && columns == 4) {
      *reinterpret_cast<float4*>(at) =
          make_float4(values[0], values[1], values[2], values[3]);
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < columns) at[i] = values[i];
    }
    return;
  }
  auto* const at = static_cast<__nv_bfloat16*>(c.data) + index;
  if (is_vector && columns == 4) {
    const __nv_bfloat162 low = __floats2bfloat162_rn(values[0], values[1]);
    const __nv_bfloat162 high = __floats2bfloat162_rn(values[2], values[3]);
    *reinterpret_cast<uint2*>(at) =
        make_uint2(reinterpret_cast<const uint32_t&>(low),
                   reinterpret_cast<const uint32_t&>(high));
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < columns) at[i] = __float2bfloat16_rn(values[i]);
  }
}

}  // namespace weft::ops::internal

#endif  // WEFT_KERNELS_OPS_GEMM_PRODUCT_CUDA_CUH_
