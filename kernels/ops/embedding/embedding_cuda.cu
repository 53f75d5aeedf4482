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
using cuda::KeyedIndex;
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
    cuda::Floats values = Widen(pack);
#pragma unroll
    for (float& value : values.v) value *= args.factor;
    cuda::StoreFloats<kAligned>(values, to + at, hidden - at);
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

constexpr int kSumThreads = 128;
constexpr int kColumns = 4;  // of a thread

// A warp's sum of the rows of one id, kColumns columns a thread.
template <typename T, typename Out, bool kAligned>
struct IdSum {
  const EmbeddingBackwardArgs& args;
  int64_t column;
  int32_t id;
  cuda::FloatsOf<kColumns> sums;

  __device__ IdSum(const EmbeddingBackwardArgs& args, int64_t column)
      : args(args), column(column) {}

  __device__ int64_t left() const { return args.hidden - column; }

  __device__ void Begin(int32_t new_id) {
    id = new_id;
    // Adding to this zero changes no bit.
    for (float& sum : sums.v) sum = -0.0f;
  }

  __device__ void Add(const Pack<T, kColumns>& row) {
    const cuda::FloatsOf<kColumns> values = Widen(row);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) sums.v[j] += values.v[j];
  }

  __device__ void Write() {
    if (left() <= 0 || id == args.untrained_id) return;
    Out* to = Elements<Out>(args.d_table) + id * args.hidden + column;
#pragma unroll
    for (float& sum : sums.v) sum *= args.factor;
    if (args.accumulate) {
      const cuda::FloatsOf<kColumns> before =
          Widen(cuda::LoadPack<kAligned, kColumns>(to, left()));
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        sums.v[j] = __fadd_rn(before.v[j], cuda::Rounded<Out>(sums.v[j]));
      }
    }
    cuda::StoreFloats<kAligned>(sums, to, left());
  }

  // Adds the rows of the tokens that the lanes from `begin` to before `end`
  // hold, in order; where another id begins, the sum is written. The first is
  // of the current id.
  __device__ void AddRows(KeyedIndex mine, int begin, int end) {
    constexpr int kRows = 64 / sizeof(T);  // loaded at once; 32 or 16
    const int lane = threadIdx.x % kWarp;
    const int32_t before = __shfl_up_sync(kAllLanes, mine.key, 1);
    const unsigned starts =
        __ballot_sync(kAllLanes, lane > begin && mine.key != before);
    const T* d_out = Elements<T>(args.d_out) + column;
    for (int from = begin / kRows * kRows; from < end; from += kRows) {
      Pack<T, kColumns> rows[kRows];
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        const int at = from + k;
        const int64_t token = __shfl_sync(kAllLanes, mine.index, at);
        if (at >= begin && at < end && left() > 0) {
          rows[k] = cuda::LoadPack<kAligned, kColumns>(
              d_out + token * args.hidden, left());
        }
      }
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        const int at = from + k;
        if (at < begin || at >= end) continue;
        if (starts >> at & 1) {
          Write();
          Begin(__shfl_sync(kAllLanes, mine.key, at));
        }
        Add(rows[k]);
      }
    }
  }
};

// A warp has 32 of the sorted tokens, and of them kColumns * 32 columns, of
// which there are `slices`. It sums the ids that begin there, the last one to
// its end.
template <typename T, typename Out, bool kAligned>
__global__ void __launch_bounds__(kSumThreads)
    SumKernel(const EmbeddingBackwardArgs args, const KeyedIndex* sorted,
              int64_t slices) {
  const int lane = threadIdx.x % kWarp;
  const int64_t warp =
      (static_cast<int64_t>(blockIdx.x) * kSumThreads + threadIdx.x) / kWarp;
  int64_t at = warp / slices * kWarp;
  if (at >= args.tokens) return;
  const auto get = [&](int64_t i) {
    return i < args.tokens ? sorted[i] : KeyedIndex{-1, 0};
  };
  KeyedIndex mine = get(at + lane);
  const int32_t before = at > 0 ? sorted[at - 1].key : -2;
  int begin = __popc(__ballot_sync(kAllLanes, mine.key == before));
  int end = __popc(__ballot_sync(kAllLanes, mine.key >= 0));
  if (begin >= end) return;

  IdSum<T, Out, kAligned> sum(
      args, (warp % slices * kWarp + lane) * static_cast<int64_t>(kColumns));
  sum.Begin(__shfl_sync(kAllLanes, mine.key, begin));
  while (begin < end) {
    at += kWarp;
    const KeyedIndex next = get(at + lane);
    sum.AddRows(mine, begin, end);
    if (end < kWarp) break;
    mine = next;
    begin = 0;
    end = __popc(__ballot_sync(kAllLanes, mine.key == sum.id));
  }
  sum.Write();
}

void SumRows(const EmbeddingBackwardArgs& args, const KeyedIndex* sorted,
             device::Stream& stream) {
  const int64_t slices = cuda::CeilDiv(args.hidden, int64_t{kColumns} * kWarp);
  const int64_t warps = cuda::CeilDiv(args.tokens, kWarp) * slices;
  const int64_t blocks = cuda::CeilDiv(warps, kSumThreads / kWarp);
  const bool aligned =
      cuda::PacksAligned(args.hidden, args.d_out.data, args.d_table.data);
  cuda::WithFormat(args.d_out.dtype, aligned, [&](auto type, auto is_aligned) {
    cuda::WithElementType(args.d_table.dtype, [&](auto out) {
      SumKernel<decltype(type), decltype(out), is_aligned.value>
          <<<blocks, kSumThreads, 0, device::cuda::Handle(stream)>>>(
              args, sorted, slices);
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
