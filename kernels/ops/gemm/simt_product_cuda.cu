// Products in true fp32: for fp32 operands, mixed formats, and shapes that the
// tensor cores' loads cannot address.
//
// A block of 256 threads computes tiles of 128 x 128 or, of a product with few
// rows, 32 x 256, from panels 16 deep in two buffers of shared memory. A
// product with few tiles and a deep sum is cut along the sum; the parts are
// added in ascending order.
#include <algorithm>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/gemm/product_cuda.cuh"

namespace weft::ops::internal {
namespace {

constexpr int kPanelDepth = 16;
constexpr int kThreads = 256;

// A panel of `lanes` rows of op(A), or columns of op(B). Rows of 16 bytes, and
// writes over all banks.
template <int kLanes>
using Panel = float[kPanelDepth][kLanes + 4];

template <int kRows_, int kColumns_>
struct TileShape {
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  // Of a thread: 8 columns, and as many rows as are left to it.
  static constexpr int kColumnThreads = kColumns / 8;
  static constexpr int kRowThreads = kThreads / kColumnThreads;
  static constexpr int kThreadRows = kRows / kRowThreads;
};
using Square = TileShape<128, 128>;
using Flat = TileShape<32, 256>;

// What one thread loads of the lanes that a tile needs. Neighbours in memory
// are neighbours in a warp.
template <int kLanes>
struct Side {
  static constexpr int kPerThread = kLanes * kPanelDepth / kThreads;

  const void* data;
  bool is_bf16;
  bool by_depth;       // neighbours in memory are neighbours in depth
  int64_t index;       // of the thread's first element, at depth 0
  int64_t step;        // from one of its elements to the next, in memory
  int64_t depth_step;  // from depth to depth, in memory
  int lanes;           // beyond, and beyond the depth: zeros

  // Of a thread's u-th element in a panel.
  __device__ int Lane(int u) const {
    const int thread = threadIdx.x;
    return by_depth ? thread / kPanelDepth + kThreads / kPanelDepth * u
                    : thread % kLanes;
  }
  __device__ int Depth(int u) const {
    const int thread = threadIdx.x;
    return by_depth ? thread % kPanelDepth
                    : thread / kLanes + kThreads / kLanes * u;
  }

  // `origin` is the tile's first lane at depth 0. One of the steps is 1.
  __device__ Side(const ConstTensor& tensor, int64_t origin, int64_t lane_step,
                  int64_t depth_step, int64_t lanes)
      : data(tensor.data),
        is_bf16(tensor.dtype == DType::kBf16),
        by_depth(depth_step == 1),
        index(origin + Lane(0) * lane_step + Depth(0) * depth_step),
        step((Lane(1) - Lane(0)) * lane_step +
             (Depth(1) - Depth(0)) * depth_step),
        depth_step(depth_step),
        lanes(static_cast<int>(min(lanes, int64_t{kLanes}))) {}

  __device__ float Load(int64_t at) const {
    return is_bf16
               ? __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at])
               : static_cast<const float*>(data)[at];
  }

  __device__ void LoadPanel(int64_t depth, int64_t end,
                            float (&values)[kPerThread]) const {
    const int left = static_cast<int>(
        max(int64_t{0}, min(end - depth, int64_t{kPanelDepth})));
    int64_t at = index + depth * depth_step;
#pragma unroll
    for (int u = 0; u < kPerThread; ++u) {
      values[u] = Lane(u) < lanes && Depth(u) < left ? Load(at) : 0.0f;
      at += step;
    }
  }

  __device__ void StorePanel(const float (&values)[kPerThread],
                             Panel<kLanes>& panel) const {
#pragma unroll
    for (int u = 0; u < kPerThread; ++u) panel[Depth(u)][Lane(u)] = values[u];
  }
};

struct DepthRange {
  int64_t begin;
  int64_t end;
};

// A thread's lanes of a tile are groups of four: one, or a second half a tile
// further.
template <int kLanes>
__device__ int LaneOf(int t, int u) {
  return u / 4 * (kLanes / 2) + 4 * t + u % 4;
}

template <int kLanes, int kCount>
__device__ void ReadLanes(const float (&row)[kLanes + 4], int t,
                          float (&values)[kCount]) {
#pragma unroll
  for (int u = 0; u < kCount; u += 4) {
    const float4 v =
        *reinterpret_cast<const float4*>(&row[LaneOf<kLanes>(t, u)]);
    values[u] = v.x;
    values[u + 1] = v.y;
    values[u + 2] = v.z;
    values[u + 3] = v.w;
  }
}

template <typename S>
using Sums = float[S::kThreadRows][8];

template <typename S>
__device__ void MultiplyPanel(const Panel<S::kRows>& a,
                              const Panel<S::kColumns>& b, Sums<S>& sums) {
#pragma unroll 4
  for (int d = 0; d < kPanelDepth; ++d) {
    float x[S::kThreadRows];
    float y[8];
    ReadLanes<S::kRows>(a[d], threadIdx.x / S::kColumnThreads, x);
    ReadLanes<S::kColumns>(b[d], threadIdx.x % S::kColumnThreads, y);
#pragma unroll
    for (int i = 0; i < S::kThreadRows; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
    }
  }
}

template <typename S>
struct Panels {
  Panel<S::kRows> a[2];
  Panel<S::kColumns> b[2];
};

// The sum over `range` of a tile, loading one panel ahead.
template <typename S>
__device__ void Sum(const Side<S::kRows>& a, const Side<S::kColumns>& b,
                    const DepthRange& range, Panels<S>& panels, Sums<S>& sums) {
  float next_a[Side<S::kRows>::kPerThread];
  float next_b[Side<S::kColumns>::kPerThread];
  a.LoadPanel(range.begin, range.end, next_a);
  b.LoadPanel(range.begin, range.end, next_b);
  int buffer = 0;
  for (int64_t depth = range.begin; depth < range.end; depth += kPanelDepth) {
    a.StorePanel(next_a, panels.a[buffer]);
    b.StorePanel(next_b, panels.b[buffer]);
    __syncthreads();
    a.LoadPanel(depth + kPanelDepth, range.end, next_a);
    b.LoadPanel(depth + kPanelDepth, range.end, next_b);
    MultiplyPanel<S>(panels.a[buffer], panels.b[buffer], sums);
    buffer ^= 1;
  }
  // The next tile's panels must not overtake this one's last.
  __syncthreads();
}

template <int kLanes>
__device__ Side<kLanes> SideA(const Product& p, const ProductTile& t) {
  const GemmArgs& g = p.gemm;
  const int64_t step = g.transpose_a ? 1 : g.lda;
  return {g.a, GroupOffsetA(p, t) + t.row * step, step,
          g.transpose_a ? g.lda : 1, t.rows - t.row};
}

template <int kLanes>
__device__ Side<kLanes> SideB(const Product& p, const ProductTile& t) {
  const GemmArgs& g = p.gemm;
  const int64_t step = g.transpose_b ? g.ldb : 1;
  return {g.b, GroupOffsetB(p, t) + t.column * step, step,
          g.transpose_b ? 1 : g.ldb, g.n - t.column};
}

// Rows of four sums each to C, from `index` of C's elements on.
struct Place {
  bool is_vector;  // four elements can be accessed at once
  int64_t index;
  int columns;  // of the four: those beyond are not there
};

__device__ Place PlaceOf(const Product& p, const ProductTile& t, int64_t row,
                         int64_t column) {
  const GemmArgs& g = p.gemm;
  const int64_t left = row < t.rows ? g.n - column : 0;
  const int64_t index = GroupOffsetC(p, t) + row * g.ldc + column;
  return {index % 4 == 0 && reinterpret_cast<uintptr_t>(g.c.data) % 16 == 0,
          index, static_cast<int>(max(int64_t{0}, min(left, int64_t{4})))};
}

// Writes to C, or adds, a row of the thread's sums at a time: what is there is
// read before anything is written.
template <typename S>
__device__ void StoreSums(const Product& p, const ProductTile& t,
                          const Sums<S>& sums) {
  const GemmArgs& g = p.gemm;
  const int row_thread = threadIdx.x / S::kColumnThreads;
  const int column_thread = threadIdx.x % S::kColumnThreads;
#pragma unroll
  for (int i = 0; i < S::kThreadRows; ++i) {
    const int64_t row = t.row + LaneOf<S::kRows>(row_thread, i);
    Place places[2];
    float4 old[2];
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      places[u] = PlaceOf(p, t, row,
                          t.column + LaneOf<S::kColumns>(column_thread, 4 * u));
      if (!g.accumulate) continue;
      old[u] = ReadFour(g.c, places[u].index, places[u].is_vector,
                        places[u].columns);
    }
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      const float* const four = &sums[i][4 * u];
      const float4 value =
          make_float4(__fmul_rn(g.alpha, four[0]), __fmul_rn(g.alpha, four[1]),
                      __fmul_rn(g.alpha, four[2]), __fmul_rn(g.alpha, four[3]));
      PutFour(g.c, places[u].index, places[u].is_vector, places[u].columns,
              g.accumulate, old[u], value);
    }
  }
}

// A part of a cut sum, to `part` [m, n].
template <typename S>
__device__ void StorePart(const Product& p, const ProductTile& t, float* part,
                          const Sums<S>& sums) {
#pragma unroll
  for (int i = 0; i < S::kThreadRows; ++i) {
    const int64_t row =
        t.row + LaneOf<S::kRows>(threadIdx.x / S::kColumnThreads, i);
    if (row >= t.rows) continue;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int64_t column =
          t.column + LaneOf<S::kColumns>(threadIdx.x % S::kColumnThreads, j);
      if (column < p.gemm.n) part[row * p.gemm.n + column] = sums[i][j];
    }
  }
}

// With `cuts` > 1, part c of the sum goes to parts [cuts, m, n].
template <typename S>
__global__ void __launch_bounds__(kThreads, 2)
    SimtKernel(const __grid_constant__ Product p, int cuts, float* parts) {
  __shared__ __align__(16) Panels<S> panels;
  TileWalk<S::kRows, S::kColumns> walk(p, p.offsets);
  ProductTile t;
  for (int64_t i = blockIdx.x; walk.Find(i / cuts, &t); i += gridDim.x) {
    // An empty sum adds nothing: not even +0 to -0.
    if (t.depth == 0 && p.gemm.accumulate) continue;
    const int64_t cut = i % cuts;
    const int64_t length =
        CeilDiv(CeilDiv(t.depth, cuts), kPanelDepth) * kPanelDepth;
    const DepthRange range = {min(cut * length, t.depth),
                              min((cut + 1) * length, t.depth)};
    Sums<S> sums = {};
    Sum<S>(SideA<S::kRows>(p, t), SideB<S::kColumns>(p, t), range, panels,
           sums);
    if (parts == nullptr) {
      StoreSums<S>(p, t, sums);
    } else {
      StorePart<S>(p, t, parts + cut * p.gemm.m * p.gemm.n, sums);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    AddPartsKernel(const __grid_constant__ GemmArgs g, int cuts,
                   const float* parts) {
  const int64_t count = g.m * g.n;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  float sum = 0.0f;
#pragma unroll 8
  for (int c = 0; c < cuts; ++c) sum += parts[c * count + i];
  Put(g.c, i / g.n * g.ldc + i % g.n, g.accumulate, __fmul_rn(g.alpha, sum));
}

template <typename S>
int64_t Tiles(const Product& p) {
  return CeilDiv(p.gemm.m, S::kRows) * CeilDiv(p.gemm.n, S::kColumns);
}

// Into how many parts the sum is cut: enough for 256 blocks, with parts not
// less than 256 deep.
template <typename S>
int CutsOf(const Product& p) {
  if (p.ragged != Ragged::kNone) return 1;
  const int64_t wanted = CeilDiv(256, Tiles<S>(p));
  return static_cast<int>(
      std::max<int64_t>(1, std::min(wanted, p.gemm.k / 256)));
}

// At most: how many tiles there are is known where the offsets are.
template <typename S>
int64_t BlocksOf(const Product& p, int cuts, int sm_count) {
  int64_t tiles = Tiles<S>(p);
  if (p.ragged == Ragged::kRows) {
    tiles += p.groups * CeilDiv(p.gemm.n, S::kColumns);
  }
  if (p.ragged == Ragged::kDepth) tiles *= p.groups;
  return std::min<int64_t>(tiles * cuts, int64_t{2} * sm_count);
}

template <typename S>
void Launch(const Product& product, device::Stream& stream) {
  const GemmArgs& g = product.gemm;
  const int cuts = CutsOf<S>(product);
  float* parts = nullptr;
  if (cuts > 1) {
    parts = static_cast<float*>(device::cuda::Workspace(
        stream, int64_t{cuts} * g.m * g.n * int64_t{sizeof(float)}));
    if (parts == nullptr) return;
  }
  const int64_t blocks =
      BlocksOf<S>(product, cuts, device::cuda::SmCount(stream));
  SimtKernel<S><<<static_cast<unsigned>(blocks), kThreads, 0,
                  device::cuda::Handle(stream)>>>(product, cuts, parts);
  device::cuda::CheckLaunch("SimtProduct", stream);
  if (cuts == 1) return;
  AddPartsKernel<<<static_cast<unsigned>(CeilDiv(g.m * g.n, kThreads)),
                   kThreads, 0, device::cuda::Handle(stream)>>>(g, cuts, parts);
  device::cuda::CheckLaunch("AddParts", stream);
}

}  // namespace

void SimtProduct(const Product& product, device::Stream& stream) {
  const GemmArgs& g = product.gemm;
  if (g.m == 0 || g.n == 0 || product.groups == 0) return;
  if (g.m <= 64 && product.ragged == Ragged::kNone) {
    Launch<Flat>(product, stream);
  } else {
    Launch<Square>(product, stream);
  }
}

}  // namespace weft::ops::internal
