// A permutation is built in three kernels. A tile is a run of slots: TileCounts
// counts the slots of each tile by expert; TilesBefore turns that into the rows
// of an expert that earlier tiles fill; AssignRows gives every slot its row.
#include <algorithm>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/cuda.cuh"
#include "kernels/ops/math/row_count.h"
#include "kernels/ops/permute/permute.h"

namespace weft::ops {
namespace {

using device::cuda::CheckLaunch;
using device::cuda::Handle;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kWarpSlots = 64;
constexpr int kTile = kWarps * kWarpSlots;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// The expert that a slot chose, counted from the first that gets rows; -1 when
// it is none of them.
__device__ int ExpertOf(const BuildPermutationArgs& args, int64_t slot) {
  const int64_t expert = args.topk_index[slot] - args.first_expert;
  return 0 <= expert && expert < args.num_experts ? static_cast<int>(expert)
                                                  : -1;
}

__host__ __device__ int64_t RowsThatExist(const BuildPermutationArgs& args) {
  return args.rows > 0 ? args.rows : args.tokens * args.topk;
}

// counts[tile, e] = slots of the tile that chose e.
__global__ void __launch_bounds__(kThreads)
    TileCounts(BuildPermutationArgs args, int64_t slots, int* counts) {
  extern __shared__ int of_tile[];
  const int experts = args.num_experts;
  for (int e = threadIdx.x; e < experts; e += kThreads) of_tile[e] = 0;
  __syncthreads();
  const int64_t begin = int64_t{blockIdx.x} * kTile;
  for (int i = threadIdx.x; i < kTile && begin + i < slots; i += kThreads) {
    const int expert = ExpertOf(args, begin + i);
    if (expert >= 0) atomicAdd(&of_tile[expert], 1);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += kThreads) {
    counts[int64_t{blockIdx.x} * experts + e] = of_tile[e];
  }
}

constexpr int kTileLanes = 32;

// In place, counts[tile, e] = the slots of earlier tiles that chose e;
// totals[e] = those of all. A block of 32 x kTileLanes threads does 32 experts;
// each lane a run of tiles.
__global__ void __launch_bounds__(32 * kTileLanes)
    TilesBefore(int experts, int64_t tiles, int* counts, int* totals) {
  __shared__ int of_lane[kTileLanes][32];
  const int expert = blockIdx.x * 32 + threadIdx.x;
  const int64_t run = (tiles + kTileLanes - 1) / kTileLanes;
  const int64_t begin = min(tiles, threadIdx.y * run);
  const int64_t end = min(tiles, begin + run);
  int sum = 0;
  if (expert < experts) {
#pragma unroll 4
    for (int64_t t = begin; t < end; ++t) sum += counts[t * experts + expert];
  }
  of_lane[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (expert >= experts) return;
  int before = 0;
  for (int lane = 0; lane < threadIdx.y; ++lane) {
    before += of_lane[lane][threadIdx.x];
  }
  if (threadIdx.y == kTileLanes - 1) totals[expert] = before + sum;
  for (int64_t t = begin; t < end; ++t) {
    const int count = counts[t * experts + expert];
    counts[t * experts + expert] = before;
    before += count;
  }
}

// In place, from values to the sums of those before them; by one warp.
// Returns the sum of all.
__device__ int SumsBefore(int* values, int count) {
  const int lane = threadIdx.x % 32;
  int carry = 0;
  for (int begin = 0; begin < count; begin += 32) {
    const int own = begin + lane < count ? values[begin + lane] : 0;
    int sum = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(kAllLanes, sum, step);
      if (lane >= step) sum += other;
    }
    if (begin + lane < count) values[begin + lane] = carry + sum - own;
    carry += __shfl_sync(kAllLanes, sum, 31);
  }
  return carry;
}

// Writes all that is known of a slot once its row is; without one that is -1.
// Rows ascend with experts, so slots for which there are no rows any more come
// after those that have one.
__device__ void WriteSlot(const BuildPermutationArgs& args, int slot,
                          int expert, int row) {
  const int topk = args.topk;
  const int token = slot / topk;
  const int first = token * topk;
  args.row_of_slot[slot] = row;
  if (row >= 0) {
    args.slot_of_row[row] = slot;
    args.token_of_row[row] = token;
  }
  int place = first;
  for (int other = first; other < first + topk; ++other) {
    const unsigned of_other = ExpertOf(args, other);
    const unsigned own = expert;  // -1 comes last
    place += of_other < own || (of_other == own && other < slot);
  }
  args.sorted_rows[place] = row;
  args.sorted_experts[place] = row >= 0 ? args.topk_index[slot] : -1;
}

// Gives the slots of one warp their rows, in order; next[e] is the first free
// row of expert e for this warp.
__device__ void AssignWarp(const BuildPermutationArgs& args, int64_t begin,
                           int64_t slots, int* next) {
  const unsigned below = (1u << (threadIdx.x % 32)) - 1;
  for (int64_t at = begin; at < begin + kWarpSlots && at < slots; at += 32) {
    const int64_t slot = at + threadIdx.x % 32;
    const int expert = slot < slots ? ExpertOf(args, slot) : -1;
    const unsigned peers = __match_any_sync(kAllLanes, expert);
    const int rank = __popc(peers & below);
    int row = expert >= 0 ? next[expert] + rank : -1;
    if (row >= RowsThatExist(args)) row = -1;
    __syncwarp();
    if (expert >= 0 && rank == 0) next[expert] += __popc(peers);
    __syncwarp();
    if (slot < slots) WriteSlot(args, slot, expert, row);
  }
}

// shared: first row of each expert [experts], next rows [kWarps, experts]
__global__ void __launch_bounds__(kThreads)
    AssignRows(BuildPermutationArgs args, int64_t slots, const int* before,
               const int* totals) {
  extern __shared__ int shared[];
  const int experts = args.num_experts;
  const int warp = threadIdx.x / 32;
  int* first = shared;
  int* next = shared + experts;
  for (int e = threadIdx.x; e < experts; e += kThreads) {
    first[e] = args.expert_rows > 0 ? args.expert_rows : totals[e];
  }
  for (int i = threadIdx.x; i < kWarps * experts; i += kThreads) next[i] = 0;
  __syncthreads();
  if (warp == 0) {
    const int sum = SumsBefore(first, experts);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
      args.offsets[experts] = min(int64_t{sum}, RowsThatExist(args));
    }
  }
  const int64_t begin = int64_t{blockIdx.x} * kTile + warp * kWarpSlots;
  for (int i = threadIdx.x % 32; i < kWarpSlots && begin + i < slots; i += 32) {
    const int expert = ExpertOf(args, begin + i);
    if (expert >= 0) atomicAdd(&next[warp * experts + expert], 1);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += kThreads) {
    if (blockIdx.x == 0) {
      args.offsets[e] = min(int64_t{first[e]}, RowsThatExist(args));
    }
    int row = first[e] + before[int64_t{blockIdx.x} * experts + e];
    for (int w = 0; w < kWarps; ++w) {
      const int count = next[w * experts + e];
      next[w * experts + e] = row;
      row += count;
    }
  }
  __syncthreads();
  AssignWarp(args, begin, slots, next + warp * experts);
}

// No row has a slot yet.
bool ClearRows(const BuildPermutationArgs& args, device::Stream& stream) {
  for (int32_t* of_row : {args.slot_of_row, args.token_of_row}) {
    if (args.rows > 0 &&
        !device::cuda::Check(
            cudaMemsetAsync(of_row, 0xFF, args.rows * sizeof(int32_t),
                            Handle(stream)),
            "BuildPermutation", stream)) {
      return false;
    }
  }
  return true;
}

void Build(const BuildPermutationArgs& args, device::Stream& stream) {
  const int64_t slots = args.tokens * args.topk;
  const int64_t experts = args.num_experts;
  const int64_t tiles = std::max<int64_t>(1, cuda::CeilDiv(slots, kTile));
  auto* counts = static_cast<int*>(
      device::cuda::Workspace(stream, (tiles + 1) * experts * sizeof(int)));
  if (counts == nullptr) return;
  int* totals = counts + tiles * experts;
  const int64_t shared = (kWarps + 1) * experts * sizeof(int);
  constexpr int64_t kAlwaysGranted = 48 << 10;
  if (shared > kAlwaysGranted &&
      !device::cuda::Check(
          cudaFuncSetAttribute(
              AssignRows, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
          "BuildPermutation", stream)) {
    return;
  }
  if (!ClearRows(args, stream)) return;
  TileCounts<<<tiles, kThreads, experts * sizeof(int), Handle(stream)>>>(
      args, slots, counts);
  TilesBefore<<<cuda::CeilDiv(experts, 32), dim3(32, kTileLanes), 0,
                Handle(stream)>>>(experts, tiles, counts, totals);
  AssignRows<<<tiles, kThreads, shared, Handle(stream)>>>(args, slots, counts,
                                                          totals);
  CheckLaunch("BuildPermutation", stream);
}

// A thread a token.
__global__ void __launch_bounds__(kThreads)
    IndexTokens(IndexPartialSumsArgs args) {
  const int64_t token = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (token >= args.tokens) return;
  const int topk = args.topk;
  int32_t* const ranks = args.sorted_ranks + token * topk;
  int count = 0;
  for (int64_t s = token * topk; s < (token + 1) * topk; ++s) {
    const int expert = args.topk_index[s];
    const int64_t rank = expert / args.experts_per_rank;
    args.element_of_slot[s] =
        expert < 0 ? -1 : static_cast<int>(rank * args.tokens * topk + s);
    if (expert < 0) continue;
    int place = count;
    while (place > 0 && ranks[place - 1] > rank) --place;
    if (place > 0 && ranks[place - 1] == rank) continue;
    for (int j = count; j > place; --j) ranks[j] = ranks[j - 1];
    ranks[place] = rank;
    ++count;
  }
  for (int j = 0; j < topk; ++j) {
    if (j >= count) ranks[j] = -1;
    args.sorted_rows[token * topk + j] =
        j < count ? static_cast<int>(ranks[j] * args.tokens + token) : -1;
  }
}

void IndexSums(const IndexPartialSumsArgs& args, device::Stream& stream) {
  if (args.tokens == 0) return;
  IndexTokens<<<cuda::CeilDiv(args.tokens, kThreads), kThreads, 0,
                Handle(stream)>>>(args);
  CheckLaunch("IndexPartialSums", stream);
}

// Rows that a thread copies at a time.
constexpr int kRowsAtOnce = 4;

// Rows of `width` elements of type T. A block of x * y threads copies
// y * kRowsAtOnce rows.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    CopyRows(int64_t max_rows, const int64_t* row_count, int64_t width,
             const T* src, const int32_t* index, T* out) {
  const int64_t rows = RowsOf(max_rows, row_count);
  const int64_t first =
      (int64_t{blockIdx.x} * blockDim.y + threadIdx.y) * kRowsAtOnce;
  if (first >= rows) return;
  const T* from[kRowsAtOnce];  // null: zeros
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const int32_t row = first + r < rows ? index[first + r] : -1;
    from[r] = row >= 0 ? src + row * width : nullptr;
  }
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    T values[kRowsAtOnce];
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      values[r] = from[r] != nullptr ? from[r][i] : T();
    }
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      if (first + r < rows) out[(first + r) * width + i] = values[r];
    }
  }
}

template <typename T>
void LaunchCopyRows(const GatherRowsArgs& args, device::Stream& stream) {
  const int64_t width = args.hidden * SizeOf(args.src.dtype) / sizeof(T);
  const dim3 block = cuda::RowBlock<kThreads>(width);
  const int64_t blocks = cuda::CeilDiv(args.rows, kRowsAtOnce * block.y);
  CopyRows<<<blocks, block, 0, Handle(stream)>>>(
      args.rows, args.row_count, width, static_cast<const T*>(args.src.data),
      args.index, static_cast<T*>(args.out.data));
  CheckLaunch("GatherRows", stream);
}

void Gather(const GatherRowsArgs& args, device::Stream& stream) {
  if (args.rows * args.hidden == 0) return;
  const int64_t element = SizeOf(args.src.dtype);
  const bool aligned = args.hidden * element % 16 == 0 &&
                       cuda::IsAligned(args.src.data) &&
                       cuda::IsAligned(args.out.data);
  if (aligned) {
    LaunchCopyRows<uint4>(args, stream);
  } else if (element == sizeof(uint32_t)) {
    LaunchCopyRows<uint32_t>(args, stream);
  } else {
    LaunchCopyRows<uint16_t>(args, stream);
  }
}

__global__ void __launch_bounds__(kThreads)
    CopyElements(GatherElementsArgs args) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= RowsOf(args.count, args.row_count)) return;
  args.out[i] = args.index[i] >= 0 ? args.src[args.index[i]] : 0.0f;
}

void GatherElementsOf(const GatherElementsArgs& args, device::Stream& stream) {
  if (args.count == 0) return;
  CopyElements<<<cuda::CeilDiv(args.count, kThreads), kThreads, 0,
                 Handle(stream)>>>(args);
  CheckLaunch("GatherElements", stream);
}

[[maybe_unused]] const bool kRegistered[] = {
    RegisterCudaForm<&BuildPermutation>(&Build),
    RegisterCudaForm<&IndexPartialSums>(&IndexSums),
    RegisterCudaForm<&GatherRows>(&Gather),
    RegisterCudaForm<&GatherElements>(&GatherElementsOf)};

}  // namespace
}  // namespace weft::ops
