// What the passes of a backward on Hopper's tensor cores share: tiles in shared
// memory and products of 64 rows by a warpgroup.
//
// Products leave d [64, N] with a thread of the warpgroup like this: it holds
// rows t / 32 * 16 + t % 32 / 4 (+ 8); of columns 8 j + t % 4 * 2 (+ 1), d[4 j]
// and d[4 j + 1] in the first row, d[4 j + 2] and d[4 j + 3] in the second.
#ifndef WEFT_KERNELS_OPS_ATTENTION_WGMMA_TILES_CUH_
#define WEFT_KERNELS_OPS_ATTENTION_WGMMA_TILES_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/ops/gemm/hopper.cuh"

namespace weft::ops::internal {

// Rows of a tile that is loaded or multiplied at once, and of a box: 64 rows of
// 64 elements.
constexpr int kTileRows = 64;
constexpr int kBoxBytes = kTileRows * 64 * 2;

// d [64, 64] = a [64, 16] b [64, 16]^T, both K-major in shared memory.
__device__ inline void WgmmaScores(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, 0, 1, 1, 0, 0;"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]),
        "=f"(d[6]), "=f"(d[7]), "=f"(d[8]), "=f"(d[9]), "=f"(d[10]),
        "=f"(d[11]), "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15]),
        "=f"(d[16]), "=f"(d[17]), "=f"(d[18]), "=f"(d[19]), "=f"(d[20]),
        "=f"(d[21]), "=f"(d[22]), "=f"(d[23]), "=f"(d[24]), "=f"(d[25]),
        "=f"(d[26]), "=f"(d[27]), "=f"(d[28]), "=f"(d[29]), "=f"(d[30]),
        "=f"(d[31])
      : "l"(a), "l"(b));
}

// d += the same.
__device__ inline void WgmmaAddScores(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]),
        "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]),
        "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]),
        "+f"(d[31])
      : "l"(a), "l"(b));
}

// d [64, 64] += a [64, 16] b [16, 64], a in registers, b in shared memory with
// rows along N.
__device__ inline void WgmmaWeighted(float (&d)[32], const uint32_t (&a)[4],
                                     uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]),
        "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]),
        "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]),
        "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// d [64, 128] += a [64, 16] b [16, 128], a in registers, b in shared memory
// with rows along N.
__device__ inline void WgmmaWeighted(float (&d)[64], const uint32_t (&a)[4],
                                     uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]),
        "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]),
        "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]),
        "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]),
        "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),
        "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]),
        "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// d [64, 192] += a [64, 16] b [16, 192], the same.
__device__ inline void WgmmaWeighted(float (&d)[96], const uint32_t (&a)[4],
                                     uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, "
      "%72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, "
      "%88, %89, %90, %91, %92, %93, %94, %95}, "
      "{%96, %97, %98, %99}, %100, 1, 1, 1, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]),
        "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]),
        "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]),
        "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]),
        "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),
        "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]),
        "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]),
        "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]),
        "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]),
        "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]),
        "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]),
        "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]),
        "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// Scores of 64 rows of a against 64 rows of b: a thread's part.
using Scores = float[32];
// A thread's part of 64 rows of a head.
template <int kDim>
using HeadSums = float[kDim / 2];
// Scores rounded to bf16, as the left operand of products: 16 columns a group.
using Weights = uint32_t[kTileRows / 16][4];

// scores = a b^T, begun. Tiles lie as boxes of 64 columns one after another.
template <int kDim>
__device__ inline void BeginScores(const uint8_t* a, const uint8_t* b,
                                   Scores& scores) {
  const uint32_t from_a = SharedAddress(a);
  const uint32_t from_b = SharedAddress(b);
  WgmmaScores(scores, MatrixDescriptor(from_a, 16),
              MatrixDescriptor(from_b, 16));
#pragma unroll
  for (int k = 1; k < kDim / 16; ++k) {
    const uint32_t at = k / 4 * kBoxBytes + k % 4 * 32;
    WgmmaAddScores(scores, MatrixDescriptor(from_a + at, 16),
                   MatrixDescriptor(from_b + at, 16));
  }
  WgmmaCommit();
}

// sums += weights b, begun.
template <int kDim>
__device__ inline void BeginWeighted(const Weights& weights, const uint8_t* b,
                                     HeadSums<kDim>& sums) {
  const uint32_t from = SharedAddress(b);
#pragma unroll
  for (int k = 0; k < kTileRows / 16; ++k) {
    WgmmaWeighted(sums, weights[k],
                  MatrixDescriptor(from + k * 16 * 128, kBoxBytes));
  }
  WgmmaCommit();
}

__device__ inline uint32_t PackHalves(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

// Sums of a row lie as its weights do.
__device__ inline void PackWeights(const Scores& values, Weights& weights) {
#pragma unroll
  for (int k = 0; k < kTileRows / 16; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      weights[k][i] =
          PackHalves(values[8 * k + 2 * i], values[8 * k + 2 * i + 1]);
    }
  }
}

// The first of a thread's two rows, and of its columns 8 j + {0, 1}.
__device__ inline int FirstRow() {
  return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
}
__device__ inline int FirstColumn() { return threadIdx.x % 4 * 2; }

// e to the power of x, given x times log2(e).
__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Copies `bytes`, a multiple of 16, to shared memory. Both sides are aligned to
// 16 bytes.
__device__ inline void LoadBytes(const void* from, void* to, int bytes,
                                 uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(SharedAddress(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes),
      "r"(SharedAddress(barrier))
      : "memory");
}

// A place in a ring of stages.
template <int kStages>
struct RingSlot {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void Advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Writes a thread's two rows, times `factor`, to rows of `width` elements from
// `to` on, of which there are `rows`.
template <int kDim>
__device__ inline void StoreHead(const HeadSums<kDim>& sums, float factor,
                                 int64_t rows, int64_t width,
                                 __nv_bfloat16* to) {
#pragma unroll
  for (int second = 0; second < 2; ++second) {
    const int row = FirstRow() + 8 * second;
    if (row >= rows) continue;
    __nv_bfloat16* const at = to + row * width + FirstColumn();
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      *reinterpret_cast<uint32_t*>(at + 8 * j) =
          PackHalves(sums[4 * j + 2 * second] * factor,
                     sums[4 * j + 2 * second + 1] * factor);
    }
  }
}

}  // namespace weft::ops::internal

#endif  // WEFT_KERNELS_OPS_ATTENTION_WGMMA_TILES_CUH_
