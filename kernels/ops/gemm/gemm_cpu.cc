#include <algorithm>
#include <cstring>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/gemm/gemm.h"
#include "kernels/ops/gemm/sgemm_cpu.h"
#include "kernels/ops/math/elements.h"

namespace weft::ops {
namespace {

// C is computed in tiles, whose size depends on m, n and the formats of A and B
// alone: a tile has the same bits whether it is written to C or added to it.
struct TileSize {
  int64_t rows;
  int64_t columns;
};

constexpr int64_t kTileElements = 32 * 1024;
constexpr int64_t kTileColumns = 256;

// Of widened operands: rows and columns of a tile, and how much of k is widened
// at a time.
constexpr int64_t kPanelRows = 128;
constexpr int64_t kPanelDepth = 256;

bool IsWidened(const GemmArgs& g) {
  return g.a.dtype != DType::kF32 || g.b.dtype != DType::kF32;
}

TileSize TileSizeOf(const GemmArgs& g) {
  if (IsWidened(g)) return {kPanelRows, kPanelRows};
  const int64_t columns = std::min(g.n, kTileColumns);
  return {kTileElements / columns, columns};
}

struct Tile {
  int64_t row;
  int64_t column;
  int64_t rows;
  int64_t columns;
};

// A block of an operand as it lies in memory: to dense rows.
void Widen(const ConstTensor& from, int64_t stride, int64_t rows,
           int64_t columns, float* to) {
  WithElementType(from.dtype, [&](auto type) {
    const auto* elements = Elements<decltype(type)>(from);
    for (int64_t i = 0; i < rows; ++i) {
      ConvertElements(elements + i * stride, columns, to + i * columns);
    }
  });
}

// The product of one tile, operands widened panel by panel.
void ComputeWidened(const GemmArgs& g, const Tile& t, float* out, int64_t ldo) {
  alignas(64) float a[kPanelRows * kPanelDepth];
  alignas(64) float b[kPanelRows * kPanelDepth];
  for (int64_t k = 0; k < g.k; k += kPanelDepth) {
    const int64_t depth = std::min(kPanelDepth, g.k - k);
    if (g.transpose_a) {
      Widen(g.a + (k * g.lda + t.row), g.lda, depth, t.rows, a);
    } else {
      Widen(g.a + (t.row * g.lda + k), g.lda, t.rows, depth, a);
    }
    if (g.transpose_b) {
      Widen(g.b + (t.column * g.ldb + k), g.ldb, t.columns, depth, b);
    } else {
      Widen(g.b + (k * g.ldb + t.column), g.ldb, depth, t.columns, b);
    }
    internal::Sgemm({g.transpose_a, g.transpose_b, t.rows, t.columns, depth,
                     g.alpha, a, g.transpose_a ? t.rows : depth, b,
                     g.transpose_b ? depth : t.columns, k > 0 ? 1.0f : 0.0f,
                     out, ldo});
  }
}

// The product of one tile: into `out` with `ldo` elements between rows.
void ComputeTile(const GemmArgs& g, const Tile& t, float* out, int64_t ldo) {
  if (IsWidened(g)) {
    ComputeWidened(g, t, out, ldo);
    return;
  }
  const float* a = g.a.f32() + (g.transpose_a ? t.row : t.row * g.lda);
  const float* b = g.b.f32() + (g.transpose_b ? t.column * g.ldb : t.column);
  internal::Sgemm({g.transpose_a, g.transpose_b, t.rows, t.columns, g.k,
                   g.alpha, a, g.lda, b, g.ldb, 0.0f, out, ldo});
}

// For a tile that cannot be computed in its place: it is added, or rounded.
void ComputeApart(const GemmArgs& g, const Tile& t) {
  alignas(64) float tile[kTileElements];
  ComputeTile(g, t, tile, t.columns);
  for (int64_t i = 0; i < t.rows; ++i) {
    WriteOrAdd(tile + i * t.columns, t.columns, g.accumulate,
               g.c + ((t.row + i) * g.ldc + t.column));
  }
}

void ZeroRows(const GemmArgs& g) {
  for (int64_t i = 0; i < g.m; ++i) {
    std::memset((g.c + i * g.ldc).data, 0, g.n * SizeOf(g.c.dtype));
  }
}

}  // namespace

void Gemm(const GemmArgs& args, device::Stream& stream) {
  if (RunOnCuda<&Gemm>(args, stream)) return;
  if (args.m == 0 || args.n == 0) return;
  const GemmArgs g = internal::WithLeadingDimensions(args);
  if (g.k == 0) {
    if (!g.accumulate) ZeroRows(g);
    return;
  }
  const bool in_place = !g.accumulate && g.c.dtype == DType::kF32;
  const TileSize size = TileSizeOf(g);
  for (int64_t i = 0; i < g.m; i += size.rows) {
    for (int64_t j = 0; j < g.n; j += size.columns) {
      const Tile tile = {i, j, std::min(size.rows, g.m - i),
                         std::min(size.columns, g.n - j)};
      if (in_place) {
        ComputeTile(g, tile, g.c.f32() + i * g.ldc + j, g.ldc);
      } else {
        ComputeApart(g, tile);
      }
    }
  }
}

void LinearForward(const LinearForwardArgs& args, device::Stream& stream) {
  GemmArgs g;
  g.transpose_b = true;
  g.m = args.rows;
  g.n = args.out;
  g.k = args.in;
  g.accumulate = args.accumulate;
  g.a = args.x;
  g.b = args.weight;
  g.c = args.y;
  Gemm(g, stream);
}

void LinearDgrad(const LinearDgradArgs& args, device::Stream& stream) {
  GemmArgs g;
  g.m = args.rows;
  g.n = args.in;
  g.k = args.out;
  g.accumulate = args.accumulate;
  g.a = args.dy;
  g.b = args.weight;
  g.c = args.dx;
  Gemm(g, stream);
}

void LinearWgrad(const LinearWgradArgs& args, device::Stream& stream) {
  GemmArgs g;
  g.transpose_a = true;
  g.m = args.out;
  g.n = args.in;
  g.k = args.rows;
  g.accumulate = args.accumulate;
  g.a = args.dy;
  g.b = args.x;
  g.c = args.dweight;
  Gemm(g, stream);
}

}  // namespace weft::ops
