// A stable sort by integer keys, done by one block: a radix sort that takes
// eight bits a pass.
#ifndef WEFT_KERNELS_OPS_MATH_BLOCK_SORT_CUH_
#define WEFT_KERNELS_OPS_MATH_BLOCK_SORT_CUH_

#include <cstdint>

namespace weft::ops::cuda {

// An element: its key, and where it stood before.
struct KeyedIndex {
  int32_t key;
  int32_t index;
};

inline constexpr int kDigitBits = 8;
inline constexpr int kDigits = 1 << kDigitBits;
inline constexpr int kSortThreads = 1024;
inline constexpr int kSortWarps = kSortThreads / 32;

// One pass, by the digit at `shift`. A warp has a run of neighbouring elements:
// it counts their digits, learns where each of its digits goes, and moves its
// elements there in order.
struct SortPass {
  int count;
  int shift;
  int (*places)[kDigits];  // [kSortWarps]: counts, then next places
  int warp = threadIdx.x / 32;
  int lane = threadIdx.x % 32;

  __device__ int Digit(int32_t key) const {
    return key >> shift & (kDigits - 1);
  }

  // Calls f(get(i), whether there is such an element) for the run of the warp,
  // one element a lane at a time.
  template <typename Get, typename F>
  __device__ void ForEach(Get get, F f) const {
    constexpr int kBatch = 8;  // loaded at once
    const int run = (count + kSortThreads - 1) / kSortThreads * 32;
    const int end = min((warp + 1) * run, count);
    for (int begin = warp * run; begin < end; begin += kBatch * 32) {
      KeyedIndex elements[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int i = begin + k * 32 + lane;
        elements[k] = i < end ? get(i) : KeyedIndex{};
      }
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int first = begin + k * 32;
        if (first < end) f(elements[k], first + lane < end);
      }
    }
  }

  // Turns counts into places: by digit, and for a digit by warp.
  __device__ void Scan() const {
    __shared__ int of_warp[kDigits / 32];
    const int digit = threadIdx.x;
    int total = 0;
    int before = 0;
    if (digit < kDigits) {
      for (int w = 0; w < kSortWarps; ++w) {
        const int here = places[w][digit];
        places[w][digit] = total;
        total += here;
      }
      before = total;
      for (int step = 1; step < 32; step *= 2) {
        const int lower = __shfl_up_sync(0xFFFFFFFFu, before, step);
        if (lane >= step) before += lower;
      }
      if (lane == 31) of_warp[warp] = before;
    }
    __syncthreads();
    if (digit >= kDigits) return;
    before -= total;
    for (int w = 0; w < warp; ++w) before += of_warp[w];
    for (int w = 0; w < kSortWarps; ++w) places[w][digit] += before;
  }

  template <typename Get>
  __device__ void Run(Get get, KeyedIndex* to) const {
    for (int i = threadIdx.x; i < kSortWarps * kDigits; i += kSortThreads) {
      places[0][i] = 0;
    }
    __syncthreads();
    ForEach(get, [&](KeyedIndex element, bool exists) {
      if (exists) atomicAdd(&places[warp][Digit(element.key)], 1);
    });
    __syncthreads();
    Scan();
    __syncthreads();
    ForEach(get, [&](KeyedIndex element, bool exists) {
      const int digit = exists ? Digit(element.key) : kDigits;
      const unsigned same = __match_any_sync(0xFFFFFFFFu, digit);
      const unsigned lower = same & ((1u << lane) - 1);
      const int place = exists ? places[warp][digit] + __popc(lower) : 0;
      __syncwarp();
      if (exists && lower == 0) places[warp][digit] += __popc(same);
      __syncwarp();
      if (exists) to[place] = element;
    });
    __syncthreads();
  }
};

// Passes that sort keys from 0 to `largest`.
inline int SortPasses(int64_t largest) {
  int passes = 1;
  while (largest >> (kDigitBits * passes) > 0) ++passes;
  return passes;
}

// Two buffers of as many elements as are sorted.
struct SortBuffers {
  KeyedIndex* first = nullptr;
  KeyedIndex* second = nullptr;

  // The one that holds the result.
  KeyedIndex* Sorted(int passes) const {
    return passes % 2 == 0 ? second : first;
  }
};

// Sorts 0 to `count` - 1 by their keys. Called by one block of kSortThreads.
__device__ inline void SortByKey(const int32_t* keys, int count, int passes,
                                 const SortBuffers& buffers) {
  __shared__ int places[kSortWarps][kDigits];
  for (int pass = 0; pass < passes; ++pass) {
    const SortPass sort = {count, pass * kDigitBits, places};
    const bool even = pass % 2 == 0;
    KeyedIndex* to = even ? buffers.first : buffers.second;
    const KeyedIndex* from = even ? buffers.second : buffers.first;
    if (pass == 0) {
      sort.Run([&](int i) { return KeyedIndex{keys[i], i}; }, to);
    } else {
      sort.Run([&](int i) { return from[i]; }, to);
    }
  }
}

}  // namespace weft::ops::cuda

#endif  // WEFT_KERNELS_OPS_MATH_BLOCK_SORT_CUH_
