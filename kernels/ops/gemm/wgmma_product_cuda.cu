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
#include "kernels/ops/gemm/wgmma_store.cuh"

namespace weft::ops::internal {
namespace {

constexpr int kTileRows = 128;
constexpr int kTileColumns = kWgmmaColumns;
constexpr int kPanelDepth = 64;  // 128 bytes: a row of the swizzle
constexpr int kStages = 4;
constexpr int kBoxRows = 64;
constexpr int kBoxBytes = kBoxRows * kPanelDepth * 2;
constexpr int kBoxesA = kTileRows / kBoxRows;
constexpr int kBoxesB = kTileColumns / kBoxRows;
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

// How a kernel reads its operands. kMajor: 1 where rows in memory run along M
// (or N), not K.
template <int kMajorA_, int kMajorB_>
struct Form {
  static constexpr int kMajorA = kMajorA_;
  static constexpr int kMajorB = kMajorB_;
};

// The tiles of this block.
class Tiles {
 public:
  __device__ Tiles(const Product& product, const int64_t* offsets)
      : walk_(product, offsets) {}

  __device__ bool Next(ProductTile* tile) {
    const bool found = walk_.Find(index_, tile);
    index_ += gridDim.x;
    return found;
  }

 private:
  TileWalk<kTileRows, kTileColumns> walk_;
  int64_t index_ = blockIdx.x;
};

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

template <typename F>
__device__ void LoadPanel(const Product& p, const ProductTile& t, int depth,
                          const CUtensorMap& a, const CUtensorMap& b,
                          uint8_t* stage, uint64_t* full) {
  const int first = static_cast<int>(t.first);
  const int row = static_cast<int>(t.row);
  const int column = static_cast<int>(t.column);
#pragma unroll
  for (int i = 0; i < kBoxesA; ++i) {
    const int lane = row + kBoxRows * i;
    LoadBox(a, stage + i * kBoxBytes, F::kMajorA ? lane : depth,
            first + (F::kMajorA ? depth : lane), 0, full);
  }
  const bool by_depth = p.ragged == Ragged::kDepth;
  const int group = by_depth ? 0 : static_cast<int>(t.group);
  const int from = by_depth ? first + depth : depth;
#pragma unroll
  for (int i = 0; i < kBoxesB; ++i) {
    const int lane = column + kBoxRows * i;
    LoadBox(b, stage + (kBoxesA + i) * kBoxBytes, F::kMajorB ? lane : depth,
            F::kMajorB ? from : lane, group, full);
  }
}

template <typename F>
__device__ void Produce(const Product& p, const CUtensorMap& a,
                        const CUtensorMap& b, Shared& shared) {
  Tiles tiles(p, shared.offsets);
  ProductTile t;
  Slot slot;
  while (tiles.Next(&t)) {
    for (int depth = 0; depth < t.depth; depth += kPanelDepth) {
      WaitFor(&shared.empty[slot.stage], slot.parity ^ 1);
      uint64_t* const full = &shared.full[slot.stage];
      ArriveExpectingBytes(full, kStageBytes);
      LoadPanel<F>(p, t, depth, a, b, shared.stages[slot.stage], full);
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
template <typename F>
__device__ void MultiplyPanel(const uint8_t* stage, int half,
                              float (&sums)[128]) {
  constexpr int kStepA = F::kMajorA ? 16 * 128 : 32;
  constexpr int kStepB = F::kMajorB ? 16 * 128 : 32;
  constexpr int kLeadingA = F::kMajorA ? kBoxBytes : 16;
  constexpr int kLeadingB = F::kMajorB ? kBoxBytes : 16;
  const uint32_t a = SharedAddress(stage) + half * kBoxBytes;
  const uint32_t b = SharedAddress(stage) + kBoxesA * kBoxBytes;
  WgmmaFence();
#pragma unroll
  for (int k = 0; k < kPanelDepth / 16; ++k) {
    Wgmma64x256x16<F::kMajorA, F::kMajorB>(
        sums, MatrixDescriptor(a + k * kStepA, kLeadingA),
        MatrixDescriptor(b + k * kStepB, kLeadingB));
  }
  WgmmaCommit();
}

__device__ void Release(Shared& shared, int stage) {
  if (threadIdx.x % 32 == 0) Arrive(&shared.empty[stage]);
}

// The sum of a tile. A stage is released once the products after it run.
template <typename F>
__device__ void Sum(const ProductTile& t, int half, Shared& shared, Slot* slot,
                    float (&sums)[128]) {
#pragma unroll
  for (int i = 0; i < 128; ++i) sums[i] = 0.0f;
  PinRegisters(sums);
  int last = -1;
  for (int depth = 0; depth < t.depth; depth += kPanelDepth) {
    WaitFor(&shared.full[slot->stage], slot->parity);
    if constexpr (F::kMajorA && F::kMajorB) {
      if (t.depth - depth < kPanelDepth) {
        ZeroDepthFrom(static_cast<int>(t.depth) - depth,
                      shared.stages[slot->stage]);
      }
    }
    MultiplyPanel<F>(shared.stages[slot->stage], half, sums);
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

template <typename F, typename T>
__device__ void Consume(const Product& p, Shared& shared) {
  const int half = threadIdx.x / 128 - 1;
  Tiles tiles(p, shared.offsets);
  ProductTile t;
  Slot slot;
  while (tiles.Next(&t)) {
    if (p.gemm.accumulate) PrefetchTile<T>(p, t, half);
    float sums[128];
    Sum<F>(t, half, shared, &slot, sums);
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

template <typename F, typename T>
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
      Produce<F>(p, a, b, shared);
    }
  } else {
    TakeRegisters<232>();
    Consume<F, T>(p, shared);
  }
}

// At most: how many tiles there are is known where the offsets are.
int64_t MostTiles(const Product& p) {
  const int64_t columns = CeilDiv(p.gemm.n, kTileColumns);
  const int64_t tiles = CeilDiv(p.gemm.m, kTileRows) * columns;
  if (p.ragged == Ragged::kRows) return tiles + p.groups * columns;
  return p.ragged == Ragged::kDepth ? tiles * p.groups : tiles;
}

TensorOfMatrices OperandA(const GemmArgs& g) {
  return {g.a.data,
          g.transpose_a ? g.k : g.m,
          g.transpose_a ? g.m : g.k,
          g.lda,
          1,
          g.lda,
          kBoxRows};
}

TensorOfMatrices OperandB(const Product& p) {
  const GemmArgs& g = p.gemm;
  const bool one = p.ragged != Ragged::kRows;
  return {g.b.data, g.transpose_b ? g.n : g.k, g.transpose_b ? g.k : g.n,
          g.ldb,    one ? 1 : p.groups,        one ? g.ldb : p.stride,
          kBoxRows};
}

template <typename F, typename T>
void Launch(const Product& p, device::Stream& stream) {
  CUtensorMap a;
  CUtensorMap b;
  if (!MakeTensorMap(OperandA(p.gemm), &a) || !MakeTensorMap(OperandB(p), &b)) {
    device::cuda::Fail("the driver has no tensor map for a product", stream);
    return;
  }
  const auto bytes = static_cast<int>(kAlignment + sizeof(Shared) +
                                      (p.groups + 1) * sizeof(int64_t));
  auto* const kernel = &WgmmaKernel<F, T>;
  if (!device::cuda::Check(
          cudaFuncSetAttribute(
              kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
          "WgmmaProduct: shared memory", stream)) {
    return;
  }
  const int64_t blocks =
      std::min<int64_t>(MostTiles(p), device::cuda::SmCount(stream));
  kernel<<<static_cast<unsigned>(blocks), kThreads, bytes,
           device::cuda::Handle(stream)>>>(a, b, p);
  device::cuda::CheckLaunch("WgmmaProduct", stream);
}

template <typename T>
void LaunchFor(const Product& p, device::Stream& stream) {
  if (p.gemm.transpose_a) {
    Launch<Form<1, 1>, T>(p, stream);
  } else if (p.gemm.transpose_b) {
    Launch<Form<0, 0>, T>(p, stream);
  } else {
    Launch<Form<0, 1>, T>(p, stream);
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
         !(g.transpose_a && g.transpose_b) && g.n % 8 == 0 && g.m > 0 &&
         g.n > 0 && g.k > 0 && p.groups <= kMaxGroups &&
         IsAligned(g.a.data, g.lda, 0, g.a.dtype) &&
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
