// Products in true fp32: for fp32 operands, mixed formats, and shapes that the
// tensor cores' loads cannot address.
//
// A block of 256 threads computes tiles of 128 x 128, 8 x 8 a thread, from
// panels 16 deep in two buffers of shared memory. A product with few tiles and
// a deep sum is cut along the sum; the parts are added in ascending order.
#include <algorithm>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/gemm/product_cuda.cuh"

namespace weft::ops::internal {
namespace {

constexpr int kTile = 128;
constexpr int kPanelDepth = 16;
constexpr int kThreads = 256;
constexpr int kPitch = kTile + 4;  // 16-byte rows, writes over all banks
constexpr int kPerThread = kTile * kPanelDepth / kThreads;

using Panels = float[2][kPanelDepth][kPitch];

// What one thread loads of the rows of op(A), or the columns of op(B), that a
// tile needs: lanes are rows (or columns). Neighbours in memory are neighbours
// in a warp.
struct Side {
  const void* data;
  bool is_bf16;
  bool by_depth;       // neighbours in memory are neighbours in depth
  int64_t index;       // of the thread's first element, at depth 0
  int64_t step;        // from one of its elements to the next, in memory
  int64_t depth_step;  // from depth to depth, in memory
  int lanes;           // beyond, and beyond the depth: zeros
};

// Of a thread's u-th element in a panel.
__device__ int LaneOf(bool by_depth, int u) {
  const int thread = threadIdx.x;
  return by_depth ? thread / kPanelDepth + kTile / kPerThread * u
                  : thread % kTile;
}
__device__ int DepthOf(bool by_depth, int u) {
  const int thread = threadIdx.x;
  return by_depth ? thread % kPanelDepth
                  : thread / kTile + kThreads / kTile * u;
}

// `origin` is the tile's first lane at depth 0. One of the steps is 1.
__device__ Side MakeSide(const ConstTensor& tensor, int64_t origin,
                         int64_t lane_step, int64_t depth_step, int64_t lanes) {
  const bool by_depth = depth_step == 1;
  Side side;
  side.data = tensor.data;
  side.is_bf16 = tensor.dtype == DType::kBf16;
  side.by_depth = by_depth;
  side.index = origin + LaneOf(by_depth, 0) * lane_step +
               DepthOf(by_depth, 0) * depth_step;
  side.step = by_depth ? (LaneOf(true, 1) - LaneOf(true, 0)) * lane_step
                       : (DepthOf(false, 1) - DepthOf(false, 0)) * depth_step;
  side.depth_step = depth_step;
  side.lanes = static_cast<int>(min(lanes, int64_t{kTile}));
  return side;
}

struct DepthRange {
  int64_t begin;
  int64_t end;
};

__device__ float Load(const Side& side, int64_t index) {
  return side.is_bf16 ? __bfloat162float(
                            static_cast<const __nv_bfloat16*>(side.data)[index])
                      : static_cast<const float*>(side.data)[index];
}

__device__ void LoadPanel(const Side& side, int64_t depth, int64_t end,
                          float (&values)[kPerThread]) {
  const int left =
      static_cast<int>(max(int64_t{0}, min(end - depth, int64_t{kPanelDepth})));
  int64_t index = side.index + depth * side.depth_step;
#pragma unroll
  for (int u = 0; u < kPerThread; ++u) {
    const bool inside = LaneOf(side.by_depth, u) < side.lanes &&
                        DepthOf(side.by_depth, u) < left;
    values[u] = inside ? Load(side, index) : 0.0f;
    index += side.step;
  }
}

__device__ void StorePanel(const Side& side, const float (&values)[kPerThread],
                           float (&panel)[kPanelDepth][kPitch]) {
#pragma unroll
  for (int u = 0; u < kPerThread; ++u) {
    panel[DepthOf(side.by_depth, u)][LaneOf(side.by_depth, u)] = values[u];
  }
}

// A thread's rows (or columns) of the tile: four from 4 * t on, and four 64
// further.
__device__ int LaneOfSum(int t, int u) {
  return u < 4 ? 4 * t + u : kTile / 2 + 4 * t + u - 4;
}

__device__ void LoadLanes(const float (&row)[kPitch], int t,
                          float (&values)[8]) {
  const float4 low = *reinterpret_cast<const float4*>(&row[4 * t]);
  const float4 high = *reinterpret_cast<const float4*>(&row[kTile / 2 + 4 * t]);
  values[0] = low.x;
  values[1] = low.y;
  values[2] = low.z;
  values[3] = low.w;
  values[4] = high.x;
  values[5] = high.y;
  values[6] = high.z;
  values[7] = high.w;
}

__device__ void MultiplyPanel(const float (&a)[kPanelDepth][kPitch],
                              const float (&b)[kPanelDepth][kPitch],
                              float (&sums)[8][8]) {
#pragma unroll 4
  for (int d = 0; d < kPanelDepth; ++d) {
    float x[8];
    float y[8];
    LoadLanes(a[d], threadIdx.x / 16, x);
    LoadLanes(b[d], threadIdx.x % 16, y);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
    }
  }
}

// The sum over `range` of a tile, loading one panel ahead.
__device__ void Sum(const Side& a, const Side& b, const DepthRange& range,
                    Panels& panels_a, Panels& panels_b, float (&sums)[8][8]) {
  float next_a[kPerThread];
  float next_b[kPerThread];
  LoadPanel(a, range.begin, range.end, next_a);
  LoadPanel(b, range.begin, range.end, next_b);
  int buffer = 0;
  for (int64_t depth = range.begin; depth < range.end; depth += kPanelDepth) {
    StorePanel(a, next_a, panels_a[buffer]);
    StorePanel(b, next_b, panels_b[buffer]);
    __syncthreads();
    LoadPanel(a, depth + kPanelDepth, range.end, next_a);
    LoadPanel(b, depth + kPanelDepth, range.end, next_b);
    MultiplyPanel(panels_a[buffer], panels_b[buffer], sums);
    buffer ^= 1;
  }
  // The next tile's panels must not overtake this one's last.
  __syncthreads();
}

__device__ Side SideA(const Product& p, const ProductTile& t) {
  const GemmArgs& g = p.gemm;
  const int64_t step = g.transpose_a ? 1 : g.lda;
  return MakeSide(g.a, GroupOffsetA(p, t) + t.row * step, step,
                  g.transpose_a ? g.lda : 1, t.rows - t.row);
}

__device__ Side SideB(const Product& p, const ProductTile& t) {
  const GemmArgs& g = p.gemm;
  const int64_t step = g.transpose_b ? g.ldb : 1;
  return MakeSide(g.b, GroupOffsetB(p, t) + t.column * step, step,
                  g.transpose_b ? 1 : g.ldb, g.n - t.column);
}

// Where the sums of a tile go: C or, for a part of a cut sum, `part` [m, n].
__device__ void StoreSums(const Product& p, const ProductTile& t, float* part,
                          const float (&sums)[8][8]) {
  const GemmArgs& g = p.gemm;
  const int64_t origin = GroupOffsetC(p, t);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int64_t row = t.row + LaneOfSum(threadIdx.x / 16, i);
    if (row >= t.rows) continue;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int64_t column = t.column + LaneOfSum(threadIdx.x % 16, j);
      if (column >= g.n) continue;
      if (part != nullptr) {
        part[row * g.n + column] = sums[i][j];
      } else {
        Put(g.c, origin + row * g.ldc + column, g.accumulate,
            __fmul_rn(g.alpha, sums[i][j]));
      }
    }
  }
}

// With `cuts` > 1, part c of the sum goes to parts [cuts, m, n].
__global__ void __launch_bounds__(kThreads, 2)
    SimtKernel(const __grid_constant__ Product p, int cuts, float* parts) {
  __shared__ __align__(16) Panels panels_a;
  __shared__ __align__(16) Panels panels_b;
  TileWalk<kTile, kTile> walk(p, p.offsets);
  ProductTile t;
  for (int64_t i = blockIdx.x; walk.Find(i / cuts, &t); i += gridDim.x) {
    // An empty sum adds nothing: not even +0 to -0.
    if (t.depth == 0 && p.gemm.accumulate) continue;
    const int64_t cut = i % cuts;
    const int64_t length =
        CeilDiv(CeilDiv(t.depth, cuts), kPanelDepth) * kPanelDepth;
    const DepthRange range = {min(cut * length, t.depth),
                              min((cut + 1) * length, t.depth)};
    float sums[8][8] = {};
    Sum(SideA(p, t), SideB(p, t), range, panels_a, panels_b, sums);
    StoreSums(p, t,
              parts == nullptr ? nullptr : parts + cut * p.gemm.m * p.gemm.n,
              sums);
  }
}

__global__ void __launch_bounds__(kThreads)
    AddPartsKernel(const __grid_constant__ GemmArgs g, int cuts,
                   const float* parts) {
  const int64_t count = g.m * g.n;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  float sum = 0.0f;
  for (int c = 0; c < cuts; ++c) sum += parts[c * count + i];
  Put(g.c, i / g.n * g.ldc + i % g.n, g.accumulate, __fmul_rn(g.alpha, sum));
}

int64_t Tiles(const Product& p) {
  return CeilDiv(p.gemm.m, kTile) * CeilDiv(p.gemm.n, kTile);
}

// Into how many parts the sum is cut: enough for 128 blocks, with parts not
// less than 512 deep.
int CutsOf(const Product& p) {
  if (p.ragged != Ragged::kNone) return 1;
  const int64_t wanted = CeilDiv(128, Tiles(p));
  return static_cast<int>(
      std::max<int64_t>(1, std::min(wanted, p.gemm.k / 512)));
}

// At most: how many tiles there are is known where the offsets are.
int64_t BlocksOf(const Product& p, int cuts, int sm_count) {
  const int64_t groups = p.ragged == Ragged::kNone ? 1 : p.groups;
  const int64_t tiles = p.ragged == Ragged::kRows
                            ? Tiles(p) + groups * CeilDiv(p.gemm.n, kTile)
                            : Tiles(p) * groups;
  return std::min<int64_t>(tiles * cuts, int64_t{2} * sm_count);
}

}  // namespace

void SimtProduct(const Product& product, device::Stream& stream) {
  const GemmArgs& g = product.gemm;
  if (g.m == 0 || g.n == 0 || product.groups == 0) return;
  const int cuts = CutsOf(product);
  float* parts = nullptr;
  if (cuts > 1) {
    parts = static_cast<float*>(device::cuda::Workspace(
        stream, int64_t{cuts} * g.m * g.n * int64_t{sizeof(float)}));
    if (parts == nullptr) return;
  }
  const int64_t blocks = BlocksOf(product, cuts, device::cuda::SmCount(stream));
  SimtKernel<<<static_cast<unsigned>(blocks), kThreads, 0,
               device::cuda::Handle(stream)>>>(product, cuts, parts);
  device::cuda::CheckLaunch("SimtProduct", stream);
  if (cuts == 1) return;
  AddPartsKernel<<<static_cast<unsigned>(CeilDiv(g.m * g.n, kThreads)),
                   kThreads, 0, device::cuda::Handle(stream)>>>(g, cuts, parts);
  device::cuda::CheckLaunch("AddParts", stream);
}

}  // namespace weft::ops::internal
