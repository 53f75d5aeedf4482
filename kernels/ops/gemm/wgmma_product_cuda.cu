// Products of bf16 on Hopper's tensor cores.
//
// A persistent block takes tiles of 128 x 256. One thread loads panels 64 deep
// by bulk tensor copies into a ring of four stages; two warpgroups multiply
// them, 64 rows of the tile each, and write C from their registers. Every tile
// is summed by one block, from depth 0 upwards.
//
// Boxes of rows cross the borders of groups. Rows of A that belong to the next
// group give rows of C that are not written; rows that a sum must not contain
// are zeroed in shared memory.
#include <algorithm>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/gemm/hopper.cuh"
#include "kernels/ops/gemm/product_cuda.cuh"
#include "kernels/ops/gemm/tensor_map_cuda.h"

namespace weft::ops::internal {
namespace {

constexpr int kTileRows = 128;
constexpr int kTileColumns = 256;
constexpr int kPanelDepth = 64;  // 128 bytes: a row of the swizzle
constexpr int kStages = 4;
constexpr int kBoxBytes = 64 * kPanelDepth * 2;
constexpr int kBoxesA = kTileRows / 64;
constexpr int kBoxesB = kTileColumns / 64;
constexpr int kStageBytes = (kBoxesA + kBoxesB) * kBoxBytes;

constexpr int kConsumers = 256;
constexpr int kThreads = 128 + kConsumers;
constexpr int kConsumerBarrier = 1;

constexpr int64_t kMaxGroups = 2048;  // whose offsets fit in shared memory

struct Shared {
  uint8_t stages[kStages][kStageBytes];
  uint64_t full[kStages];
  uint64_t empty[kStages];
  int64_t offsets[];  // [groups + 1]
};

// Of a block's dynamic memory, for aligning the stages.
constexpr int kAlignment = 1024;

using Walk = TileWalk<kTileRows, kTileColumns>;

// A place in the ring.
struct Slot {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void Advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// kMajor: whether the operand's rows run along M (or N), not K.
template <bool kMajorA, bool kMajorB>
__device__ void LoadPanel(const Product& p, const ProductTile& t, int depth,
                          const CUtensorMap& a, const CUtensorMap& b,
                          uint8_t* stage, uint64_t* full) {
  const int first = static_cast<int>(t.first);
  const int row = static_cast<int>(t.row);
  const int column = static_cast<int>(t.column);
  const bool by_depth = p.ragged == Ragged::kDepth;
  if constexpr (kMajorA) {
    for (int i = 0; i < kBoxesA; ++i) {
      LoadBox(a, stage + i * kBoxBytes, row + 64 * i, first + depth, 0, full);
    }
  } else {
    LoadBox(a, stage, depth, first + row, 0, full);
  }
  uint8_t* const stage_b = stage + kBoxesA * kBoxBytes;
  const int group = by_depth ? 0 : static_cast<int>(t.group);
  if constexpr (kMajorB) {
    const int from = by_depth ? first + depth : depth;
    for (int i = 0; i < kBoxesB; ++i) {
      LoadBox(b, stage_b + i * kBoxBytes, column + 64 * i, from, group, full);
    }
  } else {
    LoadBox(b, stage_b, depth, column, group, full);
  }
}

template <bool kMajorA, bool kMajorB>
__device__ void Produce(const Product& p, const CUtensorMap& a,
                        const CUtensorMap& b, Shared& shared) {
  Walk walk(p, shared.offsets);
  ProductTile t;
  Slot slot;
  for (int64_t i = blockIdx.x; walk.Find(i, &t); i += gridDim.x) {
    for (int depth = 0; depth < t.depth; depth += kPanelDepth) {
      WaitFor(&shared.empty[slot.stage], slot.parity ^ 1);
      uint64_t* const full = &shared.full[slot.stage];
      ArriveExpectingBytes(full, kStageBytes);
      LoadPanel<kMajorA, kMajorB>(p, t, depth, a, b, shared.stages[slot.stage],
                                  full);
      slot.Advance();
    }
  }
}

// Zeroes the rows of a panel from `depth` on, of both operands. All consumers
// call it.
__device__ void ZeroDepthFrom(int depth, uint8_t* stage) {
  const int thread = threadIdx.x % kConsumers;
  const int vectors = (kPanelDepth - depth) * 8;  // of 16 bytes, in a box
  for (int i = thread; i < (kBoxesA + kBoxesB) * vectors; i += kConsumers) {
    uint8_t* const box = stage + i / vectors * kBoxBytes + depth * 128;
    reinterpret_cast<uint4*>(box)[i % vectors] = make_uint4(0, 0, 0, 0);
  }
  FenceAsyncProxy();
  SyncThreads(kConsumerBarrier, kConsumers);
}

// The product of one panel, by the warpgroup that has rows 64 * `half` on.
template <bool kMajorA, bool kMajorB>
__device__ void MultiplyPanel(const uint8_t* stage, int half,
                              float (&sums)[128]) {
  constexpr int kStepA = kMajorA ? 16 * 128 : 32;
  constexpr int kStepB = kMajorB ? 16 * 128 : 32;
  constexpr int kLeadingA = kMajorA ? kBoxBytes : 16;
  constexpr int kLeadingB = kMajorB ? kBoxBytes : 16;
  const uint32_t a = SharedAddress(stage) + half * kBoxBytes;
  const uint32_t b = SharedAddress(stage) + kBoxesA * kBoxBytes;
  WgmmaFence();
#pragma unroll
  for (int k = 0; k < kPanelDepth / 16; ++k) {
    Wgmma64x256x16<kMajorA, kMajorB>(
        sums, MatrixDescriptor(a + k * kStepA, kLeadingA),
        MatrixDescriptor(b + k * kStepB, kLeadingB));
  }
  WgmmaCommit();
}

__device__ void Release(Shared& shared, int stage) {
  if (threadIdx.x % 32 == 0) Arrive(&shared.empty[stage]);
}

// The sum of a tile. A stage is released once the products after it run.
template <bool kMajorA, bool kMajorB>
__device__ void Sum(const ProductTile& t, int half, Shared& shared, Slot* slot,
                    float (&sums)[128]) {
#pragma unroll
  for (int i = 0; i < 128; ++i) sums[i] = 0.0f;
  PinRegisters(sums);
  int last = -1;
  for (int depth = 0; depth < t.depth; depth += kPanelDepth) {
    WaitFor(&shared.full[slot->stage], slot->parity);
    if constexpr (kMajorA && kMajorB) {
      if (t.depth - depth < kPanelDepth) {
        ZeroDepthFrom(static_cast<int>(t.depth) - depth,
                      shared.stages[slot->stage]);
      }
    }
    MultiplyPanel<kMajorA, kMajorB>(shared.stages[slot->stage], half, sums);
    if (last >= 0) {
      WgmmaWait<1>();
      Release(shared, last);
    }
    last = slot->stage;
    slot->Advance();
  }
  WgmmaWait<0>();
  PinRegisters(sums);
  if (last >= 0) Release(shared, last);
}

__device__ void Swap(bool first, uint32_t& a, uint32_t& b, int lane_mask) {
  const uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, first ? a : b, lane_mask);
  if (first) {
    a = got;
  } else {
    b = got;
  }
}

// Of four lanes in a row, lane q holds pair q of four blocks of eight columns;
// then it holds the four pairs of block q.
__device__ void TransposeQuad(uint32_t (&pairs)[4]) {
  const int q = threadIdx.x % 4;
  Swap((q & 1) != 0, pairs[0], pairs[1], 1);
  Swap((q & 1) != 0, pairs[2], pairs[3], 1);
  Swap((q & 2) != 0, pairs[0], pairs[2], 2);
  Swap((q & 2) != 0, pairs[1], pairs[3], 2);
}

__device__ uint32_t AddPairs(uint32_t c, uint32_t value) {
  const auto x = reinterpret_cast<const __nv_bfloat162&>(c);
  const auto y = reinterpret_cast<const __nv_bfloat162&>(value);
  const __nv_bfloat162 sum = {AddTo(x.x, y.x), AddTo(x.y, y.y)};
  return reinterpret_cast<const uint32_t&>(sum);
}

__device__ uint32_t RoundPair(float alpha, float x, float y) {
  const __nv_bfloat162 pair =
      __floats2bfloat162_rn(__fmul_rn(alpha, x), __fmul_rn(alpha, y));
  return reinterpret_cast<const uint32_t&>(pair);
}

// One row of a thread's sums (`second`: the one 8 further) to `row` of C, whose
// `columns` are a multiple of 8. Without `write` only the exchange.
__device__ void StoreRow(const GemmArgs& g, bool write, __nv_bfloat16* row,
                         int columns, bool second, const float (&sums)[128]) {
  const int q = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < kTileColumns / 8; j += 4) {
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = 4 * (j + i) + (second ? 2 : 0);
      pairs[i] = RoundPair(g.alpha, sums[at], sums[at + 1]);
    }
    TransposeQuad(pairs);
    const int column = 8 * (j + q);
    if (!write || column >= columns) continue;
    uint4* const to = reinterpret_cast<uint4*>(row + column);
    if (g.accumulate) {
      const uint4 c = *to;
      *to = make_uint4(AddPairs(c.x, pairs[0]), AddPairs(c.y, pairs[1]),
                       AddPairs(c.z, pairs[2]), AddPairs(c.w, pairs[3]));
    } else {
      *to = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
  }
}

__device__ void StoreRow(const GemmArgs& g, bool write, float* row, int columns,
                         bool second, const float (&sums)[128]) {
  const int q = threadIdx.x % 4;
  if (!write) return;
#pragma unroll
  for (int j = 0; j < kTileColumns / 8; ++j) {
    const int column = 8 * j + 2 * q;
    if (column >= columns) continue;
    const int at = 4 * j + (second ? 2 : 0);
    float2* const to = reinterpret_cast<float2*>(row + column);
    float2 value = make_float2(__fmul_rn(g.alpha, sums[at]),
                               __fmul_rn(g.alpha, sums[at + 1]));
    if (g.accumulate) {
      const float2 c = *to;
      value = make_float2(AddTo(c.x, value.x), AddTo(c.y, value.y));
    }
    *to = value;
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
      static_cast<int>(min(g.n - t.column, int64_t{kTileColumns}));
  StoreRow(g, row < t.rows, c + row * g.ldc, columns, false, sums);
  StoreRow(g, row + 8 < t.rows, c + (row + 8) * g.ldc, columns, true, sums);
}

template <bool kMajorA, bool kMajorB, typename T>
__device__ void Consume(const Product& p, Shared& shared) {
  const int half = threadIdx.x / 128 - 1;
  Walk walk(p, shared.offsets);
  ProductTile t;
  Slot slot;
  for (int64_t i = blockIdx.x; walk.Find(i, &t); i += gridDim.x) {
    float sums[128];
    Sum<kMajorA, kMajorB>(t, half, shared, &slot, sums);
    // An empty sum adds nothing: not even +0 to -0.
    if (t.depth == 0 && p.gemm.accumulate) continue;
    StoreTile<T>(p, t, half, sums);
  }
}

__device__ void Prepare(const Product& p, Shared& shared) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(&shared.full[i], 1);
      InitBarrier(&shared.empty[i], kConsumers / 32);
    }
    FenceBarrierInit();
  }
  if (p.ragged != Ragged::kNone) {
    for (int i = threadIdx.x; i <= p.groups; i += kThreads) {
      shared.offsets[i] = p.offsets[i];
    }
  }
  __syncthreads();
}

template <bool kMajorA, bool kMajorB, typename T>
__global__ void __launch_bounds__(kThreads, 1)
    WgmmaKernel(const __grid_constant__ CUtensorMap a,
                const __grid_constant__ CUtensorMap b,
                const __grid_constant__ Product p) {
  extern __shared__ uint8_t memory[];
  const uint32_t misaligned = SharedAddress(memory) % kAlignment;
  Shared& shared = *reinterpret_cast<Shared*>(
      memory + (misaligned == 0 ? 0 : kAlignment - misaligned));
  Prepare(p, shared);
  if (threadIdx.x < 128) {
    GiveRegisters<40>();
    if (threadIdx.x == 0) {
      PrefetchTensorMap(a);
      PrefetchTensorMap(b);
      Produce<kMajorA, kMajorB>(p, a, b, shared);
    }
  } else {
    TakeRegisters<232>();
    Consume<kMajorA, kMajorB, T>(p, shared);
  }
}

int64_t BlocksOf(const Product& p, int sm_count) {
  const int64_t columns = CeilDiv(p.gemm.n, kTileColumns);
  int64_t tiles = CeilDiv(p.gemm.m, kTileRows) * columns;
  if (p.ragged == Ragged::kRows) tiles += p.groups * columns;
  if (p.ragged == Ragged::kDepth) tiles *= p.groups;
  return std::min<int64_t>(tiles, sm_count);
}

template <bool kMajorA, bool kMajorB, typename T>
void Launch(const Product& p, device::Stream& stream) {
  const GemmArgs& g = p.gemm;
  const bool one_b = p.ragged != Ragged::kRows;
  const TensorOfMatrices matrices_a = {g.a.data,
                                       g.transpose_a ? g.k : g.m,
                                       g.transpose_a ? g.m : g.k,
                                       g.lda,
                                       1,
                                       g.lda,
                                       kMajorA ? kPanelDepth : kTileRows};
  const TensorOfMatrices matrices_b = {g.b.data,
                                       g.transpose_b ? g.n : g.k,
                                       g.transpose_b ? g.k : g.n,
                                       g.ldb,
                                       one_b ? 1 : p.groups,
                                       one_b ? g.ldb : p.stride,
                                       kMajorB ? kPanelDepth : kTileColumns};
  CUtensorMap a;
  CUtensorMap b;
  if (!MakeTensorMap(matrices_a, &a) || !MakeTensorMap(matrices_b, &b)) {
    device::cuda::Fail("the driver has no tensor map for a product", stream);
    return;
  }
  const int bytes = static_cast<int>(kAlignment + sizeof(Shared) +
                                     (p.groups + 1) * sizeof(int64_t));
  auto* const kernel = &WgmmaKernel<kMajorA, kMajorB, T>;
  if (!device::cuda::Check(
          cudaFuncSetAttribute(
              kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
          "WgmmaProduct: shared memory", stream)) {
    return;
  }
  const int64_t blocks = BlocksOf(p, device::cuda::SmCount(stream));
  kernel<<<static_cast<unsigned>(blocks), kThreads, bytes,
           device::cuda::Handle(stream)>>>(a, b, p);
  device::cuda::CheckLaunch("WgmmaProduct", stream);
}

template <typename T>
void LaunchFor(const Product& p, device::Stream& stream) {
  if (p.gemm.transpose_a) {
    Launch<true, true, T>(p, stream);
  } else if (p.gemm.transpose_b) {
    Launch<false, false, T>(p, stream);
  } else {
    Launch<false, true, T>(p, stream);
  }
}

bool IsAligned(const void* data, int64_t leading, int64_t stride, DType dtype) {
  const int64_t elements = 16 / SizeOf(dtype);
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 &&
         leading % elements == 0 && stride % elements == 0;
}

}  // namespace

bool IsForWgmma(const Product& p) {
  const GemmArgs& g = p.gemm;
  const int64_t stride_b = p.ragged == Ragged::kRows ? p.stride : 0;
  const int64_t stride_c = p.ragged == Ragged::kDepth ? p.stride : 0;
  return g.a.dtype == DType::kBf16 && g.b.dtype == DType::kBf16 &&
         !(g.transpose_a && g.transpose_b) && g.n % 8 == 0 &&
         p.groups <= kMaxGroups && IsAligned(g.a.data, g.lda, 0, g.a.dtype) &&
         IsAligned(g.b.data, g.ldb, stride_b, g.b.dtype) &&
         IsAligned(g.c.data, g.ldc, stride_c, g.c.dtype);
}

void WgmmaProduct(const Product& p, device::Stream& stream) {
  if (p.gemm.m == 0 || p.gemm.n == 0 || p.groups == 0) return;
  if (p.gemm.c.dtype == DType::kBf16) {
    LaunchFor<__nv_bfloat16>(p, stream);
  } else {
    LaunchFor<float>(p, stream);
  }
}

}  // namespace weft::ops::internal
