// A few neighbouring elements of a row, the unit in which CUDA kernels read and
// write: eight, which are 16 bytes of bf16 and 32 of fp32, where nothing else
// is said. Four are better where most of what is written is fp32.
//
// Which thread handles an element, and so the order of a sum, depends on the
// element's index alone: results have the same bits in both formats and for
// every alignment. kAligned says that all packs of a call are whole and begin
// at multiples of 16 bytes; without it elements are read one by one.
#ifndef WEFT_KERNELS_OPS_MATH_PACK_CUH_
#define WEFT_KERNELS_OPS_MATH_PACK_CUH_

#include <cstdint>
#include <type_traits>

#include "base/bf16.h"
#include "kernels/ops/math/cuda.cuh"

namespace weft::ops::cuda {

inline constexpr int kPack = 8;

// to = value, or to = to + value as kernels/ops/stream.h defines `accumulate`.
template <typename T>
__device__ void WriteOrAdd(float value, bool accumulate, T* to) {
  const float rounded = Rounded<T>(value);
  Store(to, accumulate ? __fadd_rn(Load(to), rounded) : rounded);
}

// Elements as memory holds them.
template <typename T, int kCount = kPack>
struct alignas(kCount * sizeof(T) < 16 ? kCount * sizeof(T) : 16) Pack {
  T elements[kCount];

  // What is loaded and stored at once.
  using Word = std::conditional_t<kCount * sizeof(T) % 16 == 0, uint4, uint2>;
  static constexpr int kWords = kCount * sizeof(T) / sizeof(Word);
};

template <int kCount = kPack>
struct FloatsOf {
  float v[kCount];
};
using Floats = FloatsOf<>;

template <typename T, int kCount>
__device__ FloatsOf<kCount> Widen(const Pack<T, kCount>& pack) {
  FloatsOf<kCount> floats;
#pragma unroll
  for (int j = 0; j < kCount; ++j) floats.v[j] = Load(&pack.elements[j]);
  return floats;
}

__device__ inline void StorePair(float* at, float a, float b) {
  at[0] = a;
  at[1] = b;
}
// Requires: `at` is aligned to 4 bytes.
__device__ inline void StorePair(Bf16* at, float a, float b) {
  *reinterpret_cast<__nv_bfloat162*>(at) = __floats2bfloat162_rn(a, b);
}

template <typename T, int kCount>
__device__ Pack<T, kCount> Narrow(const FloatsOf<kCount>& floats) {
  Pack<T, kCount> pack;
#pragma unroll
  for (int j = 0; j < kCount; j += 2) {
    StorePair(pack.elements + j, floats.v[j], floats.v[j + 1]);
  }
  return pack;
}

// The pack at `from`, of which `left` elements exist; `fill` stands for others.
template <bool kAligned, int kCount = kPack, typename T>
__device__ Pack<T, kCount> LoadPack(const T* from, int64_t left, T fill = T()) {
  using P = Pack<T, kCount>;
  using Word = typename P::Word;
  P pack;
  if constexpr (kAligned) {
    Word* words = reinterpret_cast<Word*>(pack.elements);
#pragma unroll
    for (int i = 0; i < P::kWords; ++i) {
      words[i] = reinterpret_cast<const Word*>(from)[i];
    }
  } else {
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      pack.elements[j] = j < left ? from[j] : fill;
    }
  }
  return pack;
}

template <bool kAligned, typename T, int kCount>
__device__ void StorePack(const Pack<T, kCount>& pack, T* to, int64_t left) {
  using P = Pack<T, kCount>;
  using Word = typename P::Word;
  if constexpr (kAligned) {
    const Word* words = reinterpret_cast<const Word*>(pack.elements);
#pragma unroll
    for (int i = 0; i < P::kWords; ++i) {
      reinterpret_cast<Word*>(to)[i] = words[i];
    }
  } else {
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (j < left) to[j] = pack.elements[j];
    }
  }
}

template <bool kAligned, typename T, int kCount>
__device__ void StoreFloats(const FloatsOf<kCount>& floats, T* to,
                            int64_t left) {
  StorePack<kAligned>(Narrow<T>(floats), to, left);
}

// A block that shares out a row gives its packs to its threads in turn. The
// first element of this thread, and the distance between its packs.
template <int kCount = kPack>
__device__ inline int64_t RowBegin() {
  return threadIdx.x * kCount;
}
template <int kCount = kPack>
__device__ inline int64_t RowStride() {
  return blockDim.x * kCount;
}

// kPacks packs of this thread, loaded at once; those at `width` or behind are
// left out.
template <typename T, bool kAligned, int kPacks, int kCount = kPack>
struct Batch {
  Pack<T, kCount> packs[kPacks];

  __device__ Batch(const T* row, int64_t begin, int64_t width, T fill = T()) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int64_t at = begin + k * RowStride<kCount>();
      if (at < width) {
        packs[k] = LoadPack<kAligned, kCount>(row + at, width - at, fill);
      }
    }
  }
};

// Calls f(at, pack of each batch) for the packs of batches that begin at
// `begin`.
template <bool kAligned, int kPacks, int kCount = kPack, typename F,
          typename... T>
__device__ void ForEachPack(
    int64_t begin, int64_t width, F f,
    const Batch<T, kAligned, kPacks, kCount>&... batches) {
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int64_t at = begin + k * RowStride<kCount>();
    if (at < width) f(at, batches.packs[k]...);
  }
}

// Threads for a row: each has at most `packs` packs as long as a block can have
// more threads.
inline constexpr int kMaxRowThreads = 512;
inline int RowThreads(int64_t width, int packs) {
  constexpr int kWarp = 32;
  const int64_t warps = CeilDiv(width, int64_t{kPack} * kWarp * packs);
  if (warps < 1) return kWarp;
  return warps * kWarp < kMaxRowThreads ? static_cast<int>(warps) * kWarp
                                        : kMaxRowThreads;
}

// Whether packs of rows with this distance are aligned, as kAligned says, in
// all of `pointers`.
template <typename... Pointers>
bool PacksAligned(int64_t width, Pointers... pointers) {
  const uintptr_t bits = (reinterpret_cast<uintptr_t>(pointers) | ... | 0);
  return width % kPack == 0 && bits % sizeof(uint4) == 0;
}

// Calls f(element type, std::bool_constant of `aligned`).
template <typename F>
void WithFormat(DType dtype, bool aligned, F f) {
  WithElementType(dtype, [&](auto type) {
    if (aligned) {
      f(type, std::true_type());
    } else {
      f(type, std::false_type());
    }
  });
}

// `value` of all threads of a block combined, in every thread, in a fixed
// order. Requires: the block is one of RowThreads, and all its threads call.
template <typename V, typename Combine>
__device__ V RowReduce(V value, Combine combine) {
  constexpr int kWarp = 32;
  __shared__ V of_warp[kMaxRowThreads / kWarp];
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    value = combine(value, __shfl_xor_sync(0xFFFFFFFFu, value, step));
  }
  if (blockDim.x == kWarp) return value;
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  V total = of_warp[0];
  for (int warp = 1; warp < blockDim.x / kWarp; ++warp) {
    total = combine(total, of_warp[warp]);
  }
  __syncthreads();  // before the next call writes
  return total;
}

template <typename V>
__device__ V RowSum(V value) {
  return RowReduce(value, [](V a, V b) { return a + b; });
}

}  // namespace weft::ops::cuda

#endif  // WEFT_KERNELS_OPS_MATH_PACK_CUH_
