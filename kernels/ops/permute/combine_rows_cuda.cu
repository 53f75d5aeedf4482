#include <algorithm>
#include <type_traits>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/cuda.cuh"
#include "kernels/ops/permute/permute.h"

namespace weft::ops {
namespace {

constexpr int kThreads = 256;

// What one access loads: an element, or as many as 16 bytes hold.
template <int kWidth, typename T>
using Packed = std::conditional_t<kWidth == 1, T, uint4>;

__device__ void Unpack(const float& v, float (&out)[1]) { out[0] = v; }
__device__ void Unpack(const Bf16& v, float (&out)[1]) {
  out[0] = cuda::Load(&v);
}
using cuda::Unpack;

// sum += factor * packed
template <int kWidth, typename P>
__device__ void AddPacked(float factor, const P& packed, float (&sum)[kWidth]) {
  float values[kWidth];
  Unpack(packed, values);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sum[i] = fmaf(factor, values[i], sum[i]);
}

// Rows that are loaded before they are added.
constexpr int kRowsAhead = 4;
// Blocks of a multiprocessor, so that enough loads are under way.
constexpr int kCombineBlocks = 4;

// The rows of some tokens in shared memory: looked up once for all columns. The
// sign marks the first row of a rank.
constexpr int kStagedRows = 1024;
constexpr uint32_t kStartsRank = 0x80000000u;
constexpr uint32_t kNoRow = ~kStartsRank;

// `count` slots from `begin` on; all threads of the block take part.
__device__ void StageRows(const CombineRowsArgs& args, int64_t begin,
                          int64_t count, uint32_t* staged) {
  const int topk = args.topk;
  const int per_rank = args.experts_per_rank;
  const int threads = blockDim.x * blockDim.y;
  for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < count;
       i += threads) {
    const int64_t slot = begin + i;
    const int32_t* expert = args.sorted_experts + slot;
    const bool starts =
        i % topk == 0 || expert[0] / per_rank != expert[-1] / per_rank;
    const int32_t row = args.sorted_rows[slot];
    staged[i] = row < 0 ? kNoRow : row | (starts ? kStartsRank : 0);
  }
}

// What a thread has summed of the rows of a token, elements of type T.
template <int kWidth, typename T>
struct RoutedSum {
  float partial[kWidth];     // of the rank at hand
  float total[kWidth] = {};  // of the ranks before
  bool has_partial = false;
  bool has_total = false;

  template <typename P>
  __device__ void Add(bool starts_rank, const P& row) {
    if (!starts_rank) return AddPacked(1.0f, row, partial);
    if (has_partial) EndRank();
    has_partial = true;
    Unpack(row, partial);
  }

  __device__ void EndRank() {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float sum = cuda::Rounded<T>(partial[i]);
      total[i] = has_total ? total[i] + sum : sum;
    }
    has_total = true;
  }
};

// kWidth columns of a token whose rows are staged; `from` is their first row.
template <int kWidth, typename T>
__device__ void SumRouted(const uint32_t* staged, int topk, const T* from,
                          int64_t hidden, RoutedSum<kWidth, T>& sum) {
  using P = Packed<kWidth, T>;
  for (int begin = 0; begin < topk; begin += kRowsAhead) {
    uint32_t rows[kRowsAhead];
    P ahead[kRowsAhead];
#pragma unroll
    for (int j = 0; j < kRowsAhead; ++j) {
      rows[j] = begin + j < topk ? staged[begin + j] : kNoRow;
      if (rows[j] != kNoRow) {
        ahead[j] = *reinterpret_cast<const P*>(
            from + int64_t{rows[j] & ~kStartsRank} * hidden);
      }
    }
#pragma unroll
    for (int j = 0; j < kRowsAhead; ++j) {
      if (rows[j] != kNoRow) sum.Add((rows[j] & kStartsRank) != 0, ahead[j]);
    }
  }
  if (sum.has_partial) sum.EndRank();
}

// All columns of a token.
template <int kWidth, typename T>
__device__ void CombineToken(const CombineRowsArgs& args, int64_t token,
                             const uint32_t* staged) {
  using P = Packed<kWidth, T>;
  const T* rows = static_cast<const T*>(args.rows.data);
  const T* add1 = static_cast<const T*>(args.add1.data);
  const T* add2 = static_cast<const T*>(args.add2.data);
  for (int64_t column = threadIdx.x * kWidth; column < args.hidden;
       column += blockDim.x * kWidth) {
    const int64_t at = token * args.hidden + column;
    P first = {}, second = {};
    if (add1 != nullptr) first = *reinterpret_cast<const P*>(add1 + at);
    if (add2 != nullptr) second = *reinterpret_cast<const P*>(add2 + at);
    RoutedSum<kWidth, T> routed;
    SumRouted(staged, args.topk, rows + column, args.hidden, routed);
    float sum[kWidth];
    Unpack(add1 != nullptr ? first : second, sum);
    if (add1 != nullptr && add2 != nullptr) {
      AddPacked(args.factor, second, sum);
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const bool is_alone = add1 == nullptr && add2 == nullptr;
      sum[i] = is_alone ? routed.total[i]
                        : fmaf(args.factor, routed.total[i], sum[i]);
    }
    T* out = static_cast<T*>(args.out.data) + at;
    if constexpr (kWidth == 1) {
      cuda::Store(out, sum[0]);
    } else {
      cuda::StoreVector(out, sum);
    }
  }
}

// A block of x * y threads sums `share` tokens, y at a time; the rows of
// `stage` tokens fit into shared memory.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads, kCombineBlocks)
    Combine(CombineRowsArgs args, int64_t share, int64_t stage) {
  extern __shared__ uint32_t staged[];
  const int64_t begin = blockIdx.x * share;
  const int64_t end = min(begin + share, args.tokens);
  for (int64_t first = begin; first < end; first += stage) {
    const int64_t last = min(first + stage, end);
    __syncthreads();
    StageRows(args, first * args.topk, (last - first) * args.topk, staged);
    __syncthreads();
    for (int64_t token = first + threadIdx.y; token < last;
         token += blockDim.y) {
      CombineToken<kWidth, T>(args, token,
                              staged + (token - first) * args.topk);
    }
  }
}

template <int kWidth, typename T>
void LaunchCombine(const CombineRowsArgs& args, device::Stream& stream) {
  const dim3 block =
      cuda::RowBlock<kThreads>(cuda::CeilDiv(args.hidden, kWidth));
  const int64_t resident =
      int64_t{kCombineBlocks} * device::cuda::SmCount(stream);
  const int64_t share =
      std::max<int64_t>(block.y, cuda::CeilDiv(args.tokens, resident));
  const int64_t stage = std::max<int64_t>(1, kStagedRows / args.topk);
  const int64_t shared =
      std::min(stage, share) * args.topk * int64_t{sizeof(uint32_t)};
  Combine<kWidth, T>
      <<<cuda::CeilDiv(args.tokens, share), block, shared,
         device::cuda::Handle(stream)>>>(args, share, std::min(stage, share));
  device::cuda::CheckLaunch("CombineRows", stream);
}

void Run(const CombineRowsArgs& args, device::Stream& stream) {
  if (args.tokens * args.hidden == 0) return;
  cuda::WithElementType(args.out.dtype, [&](auto type) {
    using T = decltype(type);
    const bool aligned =
        args.hidden % cuda::kVector<T> == 0 &&
        cuda::IsAligned(args.rows.data) && cuda::IsAligned(args.add1.data) &&
        cuda::IsAligned(args.add2.data) && cuda::IsAligned(args.out.data);
    if (aligned) {
      LaunchCombine<cuda::kVector<T>, T>(args, stream);
    } else {
      LaunchCombine<1, T>(args, stream);
    }
  });
}

[[maybe_unused]] const bool kRegistered = RegisterCudaForm<&CombineRows>(&Run);

}  // namespace
}  // namespace weft::ops
