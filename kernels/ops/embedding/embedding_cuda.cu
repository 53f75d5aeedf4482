// Forward: a block a token. Backward: one block sorts the tokens by their ids,
// those of an id ascending, while others fill the table with zeros; then each
// id that occurs has its rows summed in order.
#include <algorithm>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/embedding/embedding.h"
#include "kernels/ops/math/block_sort.cuh"
#include "kernels/ops/math/pack.cuh"

namespace weft::ops {
namespace {

using cuda::Elements;
using cuda::Floats;
using cuda::KeyedIndex;
using cuda::kPack;
using cuda::Pack;
using cuda::RowBegin;
using cuda::RowStride;

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

constexpr int kBatch = 4;

template <typename T, bool kAligned>
__global__ void __launch_bounds__(cuda::kMaxRowThreads)
    ForwardKernel(const EmbeddingForwardArgs args) {
  const int64_t hidden = args.hidden;
  const int64_t id = args.ids[blockIdx.x];
  const T* from = Elements<T>(args.table) + id * hidden;
  T* to = Elements<T>(args.out) + blockIdx.x * hidden;
  const auto write = [&](int64_t at, const Pack<T>& pack) {
    cuda::StorePack<kAligned>(pack, to + at, hidden - at);
  };
  for (int64_t at = RowBegin(); at < hidden; at += kBatch * RowStride()) {
    cuda::ForEachPack(at, hidden, write,
                      cuda::Batch<T, kAligned, kBatch>(from, at, hidden));
  }
}

void Forward(const EmbeddingForwardArgs& args, device::Stream& stream) {
  if (args.tokens == 0 || args.hidden == 0) return;
  const bool aligned =
      cuda::PacksAligned(args.hidden, args.table.data, args.out.data);
  cuda::WithFormat(args.out.dtype, aligned, [&](auto type, auto is_aligned) {
    ForwardKernel<decltype(type), is_aligned.value>
        <<<args.tokens, cuda::RowThreads(args.hidden, kBatch), 0,
           device::cuda::Handle(stream)>>>(args);
  });
  device::cuda::CheckLaunch("EmbeddingForward", stream);
}

// Zeros to `bytes`, an even number, by `blocks` blocks of cuda::kSortThreads.
__device__ void FillZeros(void* to, int64_t bytes, int64_t block,
                          int64_t blocks) {
  const int64_t thread = block * cuda::kSortThreads + threadIdx.x;
  const int64_t threads = blocks * cuda::kSortThreads;
  uint4* words = static_cast<uint4*>(to);
  const bool aligned = reinterpret_cast<uintptr_t>(to) % sizeof(uint4) == 0;
  const int64_t count = aligned ? bytes / sizeof(uint4) : 0;
  for (int64_t i = thread; i < count; i += threads) {
    words[i] = make_uint4(0, 0, 0, 0);
  }
  uint16_t* halves = reinterpret_cast<uint16_t*>(words + count);
  const int64_t left = (bytes - count * sizeof(uint4)) / sizeof(uint16_t);
  for (int64_t i = thread; i < left; i += threads) halves[i] = 0;
}

// The first block sorts, the others fill `zero_bytes` of the table.
__global__ void __launch_bounds__(cuda::kSortThreads, 1)
    PrepareKernel(const EmbeddingBackwardArgs args, int passes,
                  const cuda::SortBuffers buffers, int64_t zero_bytes) {
  if (blockIdx.x == 0) {
    cuda::SortByKey(args.ids, static_cast<int>(args.tokens), passes, buffers);
  } else {
    FillZeros(args.d_table.data, zero_bytes, blockIdx.x - 1, gridDim.x - 1);
  }
}

constexpr int kSumThreads = 64;

// Adds rows of the tokens that the first `count` lanes hold to `sums`, in
// order. `d_out` points to the column of this thread, or is null: it has none.
template <bool kAligned, typename T>
__device__ void AddRows(const T* d_out, int64_t hidden, int64_t left,
                        int32_t token_of_lane, int count, Floats* sums) {
  constexpr int kRows = sizeof(T) == sizeof(float) ? 8 : 16;  // loaded at once
  for (int begin = 0; begin < count; begin += kRows) {
    Pack<T> rows[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const int64_t token =
          __shfl_sync(kAllLanes, token_of_lane, (begin + k) % kWarp);
      if (begin + k < count && d_out != nullptr) {
        rows[k] = cuda::LoadPack<kAligned>(d_out + token * hidden, left);
      }
    }
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (begin + k >= count) break;
      const Floats row = Widen(rows[k]);
#pragma unroll
      for (int j = 0; j < kPack; ++j) sums->v[j] += row.v[j];
    }
  }
}

// `slices` blocks, side by side in a row, for every sorted token; those of the
// first token of an id work, the others end.
template <typename T, typename Out, bool kAligned>
__global__ void __launch_bounds__(kSumThreads)
    SumKernel(const EmbeddingBackwardArgs args, const KeyedIndex* sorted,
              int64_t slices) {
  int64_t at = blockIdx.x / slices;
  const int32_t id = sorted[at].key;
  if (at > 0 && sorted[at - 1].key == id) return;

  const int64_t column =
      (blockIdx.x % slices * kSumThreads + threadIdx.x) * kPack;
  const int64_t left = args.hidden - column;
  const T* d_out = left > 0 ? Elements<T>(args.d_out) + column : nullptr;
  Floats sums;
  for (float& sum : sums.v) sum = -0.0f;  // adding to it changes no bit

  const int lane = threadIdx.x % kWarp;
  const auto get = [&](int64_t i) {
    return i < args.tokens ? sorted[i] : KeyedIndex{-1, 0};
  };
  KeyedIndex next = get(at + lane);
  int count = kWarp;
  while (count == kWarp) {
    const KeyedIndex mine = next;
    at += kWarp;
    next = get(at + lane);
    count = __popc(__ballot_sync(kAllLanes, mine.key == id));
    AddRows<kAligned>(d_out, args.hidden, left, mine.index, count, &sums);
  }
  if (d_out == nullptr) return;

  Out* to = Elements<Out>(args.d_table) + id * args.hidden + column;
  if (args.accumulate) {
    const Floats before = Widen(cuda::LoadPack<kAligned>(to, left));
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      sums.v[j] = __fadd_rn(before.v[j], cuda::Rounded<Out>(sums.v[j]));
    }
  }
  cuda::StoreFloats<kAligned>(sums, to, left);
}

void SumRows(const EmbeddingBackwardArgs& args, const KeyedIndex* sorted,
             device::Stream& stream) {
  const int64_t slices =
      cuda::CeilDiv(args.hidden, int64_t{kPack} * kSumThreads);
  const bool aligned =
      cuda::PacksAligned(args.hidden, args.d_out.data, args.d_table.data);
  cuda::WithFormat(args.d_out.dtype, aligned, [&](auto type, auto is_aligned) {
    cuda::WithElementType(args.d_table.dtype, [&](auto out) {
      SumKernel<decltype(type), decltype(out), is_aligned.value>
          <<<args.tokens * slices, kSumThreads, 0,
             device::cuda::Handle(stream)>>>(args, sorted, slices);
    });
  });
  device::cuda::CheckLaunch("EmbeddingBackward", stream);
}

void Backward(const EmbeddingBackwardArgs& args, device::Stream& stream) {
  constexpr int64_t kZeroBytes = int64_t{256} << 10;  // of a block
  const int64_t table_bytes =
      args.vocab * args.hidden * SizeOf(args.d_table.dtype);
  if (table_bytes == 0) return;
  const int64_t zero_bytes = args.accumulate ? 0 : table_bytes;
  cuda::SortBuffers buffers;
  if (args.tokens > 0) {
    buffers.first = static_cast<KeyedIndex*>(device::cuda::Workspace(
        stream, 2 * args.tokens * static_cast<int64_t>(sizeof(KeyedIndex))));
    if (buffers.first == nullptr) return;
    buffers.second = buffers.first + args.tokens;
  }
  const int passes = cuda::SortPasses(args.vocab - 1);
  PrepareKernel<<<1 + cuda::CeilDiv(zero_bytes, kZeroBytes), cuda::kSortThreads,
                  0, device::cuda::Handle(stream)>>>(args, passes, buffers,
                                                     zero_bytes);
  device::cuda::CheckLaunch("EmbeddingBackward", stream);
  if (args.tokens == 0) return;
  SumRows(args, buffers.Sorted(passes), stream);
}

[[maybe_unused]] const bool kForward =
    RegisterCudaForm<&EmbeddingForward>(&Forward);
[[maybe_unused]] const bool kBackward =
    RegisterCudaForm<&EmbeddingBackward>(&Backward);

}  // namespace
}  // namespace weft::ops
