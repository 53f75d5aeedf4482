// Two passes over the scores, so that every sum has one owner and one order:
// one in which a block owns 128 keys of a key head and walks over the queries
// of the heads that read it, for dk and dv, and one in which it owns 128
// queries of a head and walks over their keys, for dq. Each computes
// probabilities anew.
//
// In both, one thread loads tiles of 64 rows into a ring of stages by bulk
// tensor copies, and two warpgroups own 64 rows each. Scores stay in registers
// and are, rounded, the left operands of the products that follow.
#include <cuda_runtime.h>

#include <cmath>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/attention/wgmma_backward.h"
#include "kernels/ops/attention/wgmma_tiles.cuh"
#include "kernels/ops/gemm/hopper.cuh"
#include "kernels/ops/gemm/tensor_map_cuda.h"
#include "kernels/ops/math/cuda.cuh"

namespace weft::ops::internal {
namespace {

constexpr int kOwners = 2;  // warpgroups, after the one that loads
constexpr int kThreads = 128 * (1 + kOwners);
constexpr int kOwnedRows = kOwners * kTileRows;
constexpr int kStages = 3;
constexpr float kLog2E = 1.44269504088896341f;

// Of a query: lse * log2(e), and delta = sum(d_out * out). Past the end of a
// sequence lse is infinite: all its probabilities are zero.
struct QueryStats {
  float lse2;
  float delta;
};

struct Pass {
  AttentionShape shape;
  int64_t padded_seq;       // a multiple of kOwnedRows
  const QueryStats* stats;  // [batch, heads, padded_seq]
  __nv_bfloat16* d_qkv;

  __device__ const QueryStats* StatsOf(int64_t sequence, int64_t head,
                                       int64_t query) const {
    return stats + (sequence * shape.num_heads + head) * padded_seq + query;
  }
};

// kDim: width of a head of queries and keys; kValueDim: of values and outputs.
template <int kDim, int kValueDim>
struct Shared {
  static constexpr int kTileBytes = kDim / 64 * kBoxBytes;
  static constexpr int kValueTileBytes = kValueDim / 64 * kBoxBytes;
  struct Stage {
    uint8_t first[kTileBytes];        // queries, or keys
    uint8_t second[kValueTileBytes];  // d_out, or values
  };
  struct Owned {
    uint8_t first[kOwners][kTileBytes];        // keys, or queries
    uint8_t second[kOwners][kValueTileBytes];  // values, or d_out
  };
  Owned owned;
  Stage stages[kStages];
  QueryStats stats[kStages][kTileRows];
  uint64_t owned_full;
  uint64_t full[kStages];
  uint64_t empty[kStages];
};
constexpr int kAlignment = 1024;  // of `Shared`

template <int kDim, int kValueDim>
__device__ Shared<kDim, kValueDim>& SharedIn(uint8_t* memory) {
  const uint32_t misaligned = SharedAddress(memory) % kAlignment;
  return *reinterpret_cast<Shared<kDim, kValueDim>*>(
      memory + (misaligned == 0 ? 0 : kAlignment - misaligned));
}

template <int kDim, int kValueDim>
__device__ void InitBarriers(Shared<kDim, kValueDim>& shared) {
  if (threadIdx.x == 0) {
    InitBarrier(&shared.owned_full, 1);
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(&shared.full[i], 1);
      InitBarrier(&shared.empty[i], kOwners * 4);
    }
    FenceBarrierInit();
  }
  __syncthreads();
}

template <int kDim>
__device__ void LoadTile(const CUtensorMap& map, int64_t column, int64_t row,
                         int64_t sequence, uint8_t* to, uint64_t* barrier) {
  for (int i = 0; i < kDim / 64; ++i) {
    LoadBox(map, to + i * kBoxBytes, static_cast<int>(column) + 64 * i,
            static_cast<int>(row), static_cast<int>(sequence), barrier);
  }
}

// A warp is done with a stage.
template <int kDim, int kValueDim>
__device__ void Release(Shared<kDim, kValueDim>& shared, int stage) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) Arrive(&shared.empty[stage]);
}

// Of element i of a thread's scores: its row of two, 8 apart, and its column.
__device__ constexpr int RowOf(int i) { return i / 2 % 2; }
__device__ constexpr int ColumnOf(int i) { return i / 4 * 8 + i % 2; }

// Scores to probabilities. `stats(row, column)` are those of the query.
template <typename Stats>
__device__ void Probabilities(float scale2, Stats&& stats, Scores& scores) {
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    scores[i] =
        Exp2(fmaf(scores[i], scale2, -stats(RowOf(i), ColumnOf(i)).lse2));
  }
}

// Sets probabilities of keys after their query to 0, of queries and keys from
// the same position on. kKeyRows: rows are keys and columns queries.
template <bool kKeyRows>
__device__ void HideFuture(Scores& p) {
  const int below = FirstRow() - FirstColumn();
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int ahead = ColumnOf(i) - 8 * RowOf(i) - below;  // column less row
    if (kKeyRows ? ahead < 0 : ahead > 0) p[i] = 0.0f;
  }
}

// d_p to ds, but for the scale.
template <typename Stats>
__device__ void ScoreGrads(const Scores& p, Stats&& stats, Scores& d_p) {
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    d_p[i] = p[i] * (d_p[i] - stats(RowOf(i), ColumnOf(i)).delta);
  }
}

// What a block of the pass for keys owns.
struct KeyBlock {
  int64_t sequence;
  int64_t kv_head;
  int64_t first;  // key

  // Those with the most queries first.
  __device__ static KeyBlock Of(const AttentionShape& s) {
    const int64_t heads = s.batch * s.num_kv_heads;
    const int64_t head = blockIdx.x % heads;
    return {head / s.num_kv_heads, head % s.num_kv_heads,
            blockIdx.x / heads * kOwnedRows};
  }
};

template <int kDim, int kValueDim>
__device__ void LoadQueries(const Pass& pass, const KeyBlock& block,
                            const CUtensorMap& qkv, const CUtensorMap& d_out,
                            Shared<kDim, kValueDim>& shared) {
  const AttentionShape& s = pass.shape;
  const int64_t key_column = s.key_column() + block.kv_head * kDim;
  const int64_t value_column = s.value_column() + block.kv_head * kValueDim;
  ArriveExpectingBytes(&shared.owned_full, sizeof(shared.owned));
  for (int i = 0; i < kOwners; ++i) {
    const int64_t row = block.first + i * kTileRows;
    LoadTile<kDim>(qkv, key_column, row, block.sequence, shared.owned.first[i],
                   &shared.owned_full);
    LoadTile<kValueDim>(qkv, value_column, row, block.sequence,
                        shared.owned.second[i], &shared.owned_full);
  }
  const int64_t group = s.num_heads / s.num_kv_heads;
  RingSlot<kStages> slot;
  for (int64_t h = block.kv_head * group; h < (block.kv_head + 1) * group;
       ++h) {
    for (int64_t row = block.first; row < s.seq; row += kTileRows) {
      uint64_t* const full = &shared.full[slot.stage];
      auto& stage = shared.stages[slot.stage];
      auto& stats = shared.stats[slot.stage];
      WaitFor(&shared.empty[slot.stage], slot.parity ^ 1);
      ArriveExpectingBytes(full, sizeof(stage) + sizeof(stats));
      LoadTile<kDim>(qkv, h * kDim, row, block.sequence, stage.first, full);
      LoadTile<kValueDim>(d_out, h * kValueDim, row, block.sequence,
                          stage.second, full);
      LoadBytes(pass.StatsOf(block.sequence, h, row), stats, sizeof(stats),
                full);
      slot.Advance();
    }
  }
}

// Adds what 64 queries give to dk and dv of 64 keys. `on_diagonal`: of the same
// positions.
template <int kDim, int kValueDim>
__device__ void AddKeyGrads(const Shared<kDim, kValueDim>& shared, int owner,
                            int stage, float scale2, bool on_diagonal,
                            HeadSums<kDim>& d_k, HeadSums<kValueDim>& d_v) {
  // Both scores at once would leave too few registers.
  constexpr bool kIsWide = kDim > 128;
  const auto& tile = shared.stages[stage];
  Scores p;
  Scores ds;
  WgmmaFence();
  BeginScores<kDim>(shared.owned.first[owner], tile.first, p);
  if constexpr (!kIsWide) {
    BeginScores<kValueDim>(shared.owned.second[owner], tile.second, ds);
  }
  const QueryStats* const stats = shared.stats[stage] + FirstColumn();
  const auto of = [&](int, int column) { return stats[column]; };
  WgmmaWait<kIsWide ? 0 : 1>();
  PinRegisters(p);
  Probabilities(scale2, of, p);
  if (on_diagonal) HideFuture<true>(p);
  Weights p_weights;
  PackWeights(p, p_weights);
  WgmmaFence();
  if constexpr (kIsWide) {
    BeginScores<kValueDim>(shared.owned.second[owner], tile.second, ds);
  }
  BeginWeighted<kValueDim>(p_weights, tile.second, d_v);
  WgmmaWait<1>();
  PinRegisters(ds);
  ScoreGrads(p, of, ds);
  Weights ds_weights;
  PackWeights(ds, ds_weights);
  WgmmaFence();
  BeginWeighted<kDim>(ds_weights, tile.first, d_k);
  WgmmaWait<0>();
  PinRegisters(d_v);
  PinRegisters(d_k);
}

template <int kDim, int kValueDim>
__device__ void SumKeyGrads(const Pass& pass, const KeyBlock& block, int owner,
                            Shared<kDim, kValueDim>& shared) {
  const AttentionShape& s = pass.shape;
  const float scale2 = s.scale * kLog2E;
  const int64_t first = block.first + owner * kTileRows;
  HeadSums<kDim> d_k = {};
  HeadSums<kValueDim> d_v = {};
  WaitFor(&shared.owned_full, 0);
  RingSlot<kStages> slot;
  for (int64_t h = 0; h < s.num_heads / s.num_kv_heads; ++h) {
    for (int64_t row = block.first; row < s.seq; row += kTileRows) {
      WaitFor(&shared.full[slot.stage], slot.parity);
      if (row >= first) {
        AddKeyGrads<kDim>(shared, owner, slot.stage, scale2, row == first, d_k,
                          d_v);
      }
      Release(shared, slot.stage);
      slot.Advance();
    }
  }
  const int64_t width = s.qkv_width();
  __nv_bfloat16* const row =
      pass.d_qkv + (block.sequence * s.seq + first) * width;
  StoreHead<kDim>(d_k, s.scale, s.seq - first, width,
                  row + s.key_column() + block.kv_head * kDim);
  StoreHead<kValueDim>(d_v, 1.0f, s.seq - first, width,
                       row + s.value_column() + block.kv_head * kValueDim);
}

template <int kDim, int kValueDim>
__global__ void __launch_bounds__(kThreads, 1)
    KeyGradKernel(const __grid_constant__ CUtensorMap qkv,
                  const __grid_constant__ CUtensorMap d_out,
                  const __grid_constant__ Pass pass) {
  extern __shared__ uint8_t memory[];
  Shared<kDim, kValueDim>& shared = SharedIn<kDim, kValueDim>(memory);
  InitBarriers(shared);
  const KeyBlock block = KeyBlock::Of(pass.shape);
  if (threadIdx.x < 128) {
    GiveRegisters<24>();
    if (threadIdx.x == 0) {
      LoadQueries<kDim>(pass, block, qkv, d_out, shared);
    }
  } else {
    TakeRegisters<240>();
    SumKeyGrads<kDim>(pass, block, threadIdx.x / 128 - 1, shared);
  }
}

// What a block of the pass for queries owns.
struct QueryBlock {
  int64_t sequence;
  int64_t head;
  int64_t first;  // query

  // Those with the most keys first.
  __device__ static QueryBlock Of(const AttentionShape& s) {
    const int64_t heads = s.batch * s.num_heads;
    const int64_t head = blockIdx.x % heads;
    const int64_t blocks = gridDim.x / heads;
    return {head / s.num_heads, head % s.num_heads,
            (blocks - 1 - blockIdx.x / heads) * kOwnedRows};
  }

  // Keys that the block sees, in whole tiles.
  __device__ int64_t End(const AttentionShape& s) const {
    return min(first + kOwnedRows, s.seq);
  }
};

template <int kDim, int kValueDim>
__device__ void LoadKeys(const Pass& pass, const QueryBlock& block,
                         const CUtensorMap& qkv, const CUtensorMap& d_out,
                         Shared<kDim, kValueDim>& shared) {
  const AttentionShape& s = pass.shape;
  ArriveExpectingBytes(&shared.owned_full, sizeof(shared.owned));
  for (int i = 0; i < kOwners; ++i) {
    const int64_t row = block.first + i * kTileRows;
    LoadTile<kDim>(qkv, block.head * kDim, row, block.sequence,
                   shared.owned.first[i], &shared.owned_full);
    LoadTile<kValueDim>(d_out, block.head * kValueDim, row, block.sequence,
                        shared.owned.second[i], &shared.owned_full);
  }
  const int64_t kv_head = block.head / (s.num_heads / s.num_kv_heads);
  const int64_t key_column = s.key_column() + kv_head * kDim;
  const int64_t value_column = s.value_column() + kv_head * kValueDim;
  RingSlot<kStages> slot;
  for (int64_t row = 0; row < block.End(s); row += kTileRows) {
    uint64_t* const full = &shared.full[slot.stage];
    auto& stage = shared.stages[slot.stage];
    WaitFor(&shared.empty[slot.stage], slot.parity ^ 1);
    ArriveExpectingBytes(full, sizeof(stage));
    LoadTile<kDim>(qkv, key_column, row, block.sequence, stage.first, full);
    LoadTile<kValueDim>(qkv, value_column, row, block.sequence, stage.second,
                        full);
    slot.Advance();
  }
}

// Adds what 64 keys give to dq of 64 queries.
template <int kDim, int kValueDim>
__device__ void AddQueryGrads(const Shared<kDim, kValueDim>& shared, int owner,
                              int stage, float scale2,
                              const QueryStats (&stats)[2], bool on_diagonal,
                              HeadSums<kDim>& d_q) {
  const auto& tile = shared.stages[stage];
  Scores p;
  Scores ds;
  WgmmaFence();
  BeginScores<kDim>(shared.owned.first[owner], tile.first, p);
  BeginScores<kValueDim>(shared.owned.second[owner], tile.second, ds);
  const auto of = [&](int row, int) { return stats[row]; };
  WgmmaWait<1>();
  PinRegisters(p);
  Probabilities(scale2, of, p);
  if (on_diagonal) HideFuture<false>(p);
  WgmmaWait<0>();
  PinRegisters(ds);
  ScoreGrads(p, of, ds);
  Weights weights;
  PackWeights(ds, weights);
  WgmmaFence();
  BeginWeighted<kDim>(weights, tile.first, d_q);
  WgmmaWait<0>();
  PinRegisters(d_q);
}

template <int kDim, int kValueDim>
__device__ void SumQueryGrads(const Pass& pass, const QueryBlock& block,
                              int owner, Shared<kDim, kValueDim>& shared) {
  const AttentionShape& s = pass.shape;
  const float scale2 = s.scale * kLog2E;
  const int64_t first = block.first + owner * kTileRows;
  const QueryStats* const rows =
      pass.StatsOf(block.sequence, block.head, first + FirstRow());
  const QueryStats stats[2] = {rows[0], rows[8]};
  HeadSums<kDim> d_q = {};
  WaitFor(&shared.owned_full, 0);
  RingSlot<kStages> slot;
  for (int64_t row = 0; row < block.End(s); row += kTileRows) {
    WaitFor(&shared.full[slot.stage], slot.parity);
    if (row <= first) {
      AddQueryGrads<kDim>(shared, owner, slot.stage, scale2, stats,
                          row == first, d_q);
    }
    Release(shared, slot.stage);
    slot.Advance();
  }
  StoreHead<kDim>(d_q, s.scale, s.seq - first, s.qkv_width(),
                  pass.d_qkv +
                      (block.sequence * s.seq + first) * s.qkv_width() +
                      block.head * kDim);
}

template <int kDim, int kValueDim>
__global__ void __launch_bounds__(kThreads, 1)
    QueryGradKernel(const __grid_constant__ CUtensorMap qkv,
                    const __grid_constant__ CUtensorMap d_out,
                    const __grid_constant__ Pass pass) {
  extern __shared__ uint8_t memory[];
  Shared<kDim, kValueDim>& shared = SharedIn<kDim, kValueDim>(memory);
  InitBarriers(shared);
  const QueryBlock block = QueryBlock::Of(pass.shape);
  if (threadIdx.x < 128) {
    GiveRegisters<24>();
    if (threadIdx.x == 0) LoadKeys<kDim>(pass, block, qkv, d_out, shared);
  } else {
    TakeRegisters<240>();
    SumQueryGrads<kDim>(pass, block, threadIdx.x / 128 - 1, shared);
  }
}

constexpr int kStatsThreads = 256;

// A warp for each query, then head: the heads of a query side by side.
template <int kValueDim>
__global__ void __launch_bounds__(kStatsThreads)
    StatsKernel(const AttentionShape s, int64_t padded_seq,
                const __nv_bfloat16* out, const __nv_bfloat16* d_out,
                const float* lse, QueryStats* stats) {
  constexpr int kElements = kValueDim / 32;
  const int64_t index =
      (int64_t{blockIdx.x} * kStatsThreads + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  const int64_t head = index % s.num_heads;
  const int64_t query = index / s.num_heads % padded_seq;
  const int64_t sequence = index / s.num_heads / padded_seq;
  if (sequence >= s.batch) return;
  QueryStats result = {INFINITY, 0.0f};
  if (query < s.seq) {
    const int64_t row = (sequence * s.seq + query) * s.num_heads + head;
    const int64_t at = row * kValueDim + lane * kElements;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kElements; i += 2) {
      const float2 x = __bfloat1622float2(
          *reinterpret_cast<const __nv_bfloat162*>(out + at + i));
      const float2 y = __bfloat1622float2(
          *reinterpret_cast<const __nv_bfloat162*>(d_out + at + i));
      sum = fmaf(x.x, y.x, sum);
      sum = fmaf(x.y, y.y, sum);
    }
    result = {lse[row] * kLog2E, cuda::WarpSum(sum)};
  }
  if (lane == 0) {
    stats[(sequence * s.num_heads + head) * padded_seq + query] = result;
  }
}

int64_t PaddedSeq(const AttentionShape& s) {
  return cuda::CeilDiv(s.seq, kOwnedRows) * kOwnedRows;
}

template <int kDim, int kValueDim, typename Kernel>
void Launch(Kernel* kernel, const char* name, int64_t heads,
            const CUtensorMap& qkv, const CUtensorMap& d_out, const Pass& pass,
            device::Stream& stream) {
  const int bytes =
      kAlignment + static_cast<int>(sizeof(Shared<kDim, kValueDim>));
  if (!device::cuda::Check(
          cudaFuncSetAttribute(
              kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
          name, stream)) {
    return;
  }
  const int64_t blocks =
      pass.padded_seq / kOwnedRows * pass.shape.batch * heads;
  kernel<<<static_cast<unsigned>(blocks), kThreads, bytes,
           device::cuda::Handle(stream)>>>(qkv, d_out, pass);
  device::cuda::CheckLaunch(name, stream);
}

template <int kValueDim>
void LaunchStats(const AttentionBackwardArgs& args, int64_t padded_seq,
                 QueryStats* stats, device::Stream& stream) {
  const AttentionShape& s = args.shape;
  const int64_t blocks = cuda::CeilDiv(s.batch * s.num_heads * padded_seq,
                                       int64_t{kStatsThreads / 32});
  StatsKernel<kValueDim><<<static_cast<unsigned>(blocks), kStatsThreads, 0,
                           device::cuda::Handle(stream)>>>(
      s, padded_seq, static_cast<const __nv_bfloat16*>(args.out.data),
      static_cast<const __nv_bfloat16*>(args.d_out.data), args.lse, stats);
  device::cuda::CheckLaunch("AttentionBackward delta", stream);
}

// Sequences of packed rows.
bool MakeRowsMap(const AttentionShape& s, const void* rows, int64_t width,
                 CUtensorMap* map) {
  return MakeTensorMap(
      {rows, s.seq, width, width, s.batch, s.seq * width, kTileRows}, map);
}

template <int kDim, int kValueDim>
void Run(const AttentionBackwardArgs& args, device::Stream& stream) {
  const AttentionShape& s = args.shape;
  const int64_t padded_seq = PaddedSeq(s);
  void* const memory = device::cuda::Workspace(
      stream, s.batch * s.num_heads * padded_seq *
                  static_cast<int64_t>(sizeof(QueryStats)));
  if (memory == nullptr) return;
  CUtensorMap qkv;
  CUtensorMap d_out;
  if (!MakeRowsMap(s, args.qkv.data, s.qkv_width(), &qkv) ||
      !MakeRowsMap(s, args.d_out.data, s.out_width(), &d_out)) {
    device::cuda::Fail("the driver has no tensor map for attention", stream);
    return;
  }
  QueryStats* const stats = static_cast<QueryStats*>(memory);
  LaunchStats<kValueDim>(args, padded_seq, stats, stream);
  const Pass pass = {s, padded_seq, stats,
                     static_cast<__nv_bfloat16*>(args.d_qkv.data)};
  Launch<kDim, kValueDim>(&QueryGradKernel<kDim, kValueDim>,
                          "AttentionBackward dq", s.num_heads, qkv, d_out, pass,
                          stream);
  Launch<kDim, kValueDim>(&KeyGradKernel<kDim, kValueDim>,
                          "AttentionBackward dk, dv", s.num_kv_heads, qkv,
                          d_out, pass, stream);
}

}  // namespace

bool IsForWgmma(const AttentionShape& s) {
  if (s.head_dim == 192) return s.value_dim() == 128;
  return (s.head_dim == 64 || s.head_dim == 128) && s.value_dim() == s.head_dim;
}

void WgmmaBackward(const AttentionBackwardArgs& args, device::Stream& stream) {
  switch (args.shape.head_dim) {
    case 64:
      return Run<64, 64>(args, stream);
    case 128:
      return Run<128, 128>(args, stream);
    default:
      return Run<192, 128>(args, stream);
  }
}

}  // namespace weft::ops::internal
