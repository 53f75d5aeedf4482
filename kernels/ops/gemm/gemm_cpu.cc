#include <algorithm>
#include <cstring>

#include "kernels/ops/gemm/gemm.h"
#include "kernels/ops/gemm/sgemm_cpu.h"

namespace weft::ops {
namespace {

// C is computed in tiles of at most this many elements and columns. The tiling
// depends on m and n alone, so a tile has the same bits whether it is written
// to C or held apart and added to it.
constexpr int64_t kTileElements = 32 * 1024;
constexpr int64_t kTileColumns = 256;

void AddTile(const float* tile, int64_t rows, int64_t columns, float* c,
             int64_t ldc) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j)
      c[i * ldc + j] += tile[i * columns + j];
  }
}

struct Tile {
  int64_t row;
  int64_t column;
  int64_t rows;
  int64_t columns;
};

// The product of one tile: into `out` with `ldo` elements between rows.
void ComputeTile(const GemmArgs& g, const Tile& t, float* out, int64_t ldo) {
  const float* a = g.a + (g.transpose_a ? t.row : t.row * g.lda);
  const float* b = g.b + (g.transpose_b ? t.column * g.ldb : t.column);
  internal::Sgemm({g.transpose_a, g.transpose_b, t.rows, t.columns, g.k,
                   g.alpha, a, g.lda, b, g.ldb, 0.0f, out, ldo});
}

void AccumulateTile(const GemmArgs& g, const Tile& t) {
  alignas(64) float tile[kTileElements];
  ComputeTile(g, t, tile, t.columns);
  AddTile(tile, t.rows, t.columns, g.c + t.row * g.ldc + t.column, g.ldc);
}

void ZeroRows(const GemmArgs& g) {
  for (int64_t i = 0; i < g.m; ++i) {
    std::memset(g.c + i * g.ldc, 0, g.n * sizeof(float));
  }
}

GemmArgs WithLeadingDimensions(GemmArgs g) {
  if (g.lda == 0) g.lda = g.transpose_a ? g.m : g.k;
  if (g.ldb == 0) g.ldb = g.transpose_b ? g.k : g.n;
  if (g.ldc == 0) g.ldc = g.n;
  return g;
}

}  // namespace

void Gemm(const GemmArgs& args, device::Stream& stream) {
  if (args.m == 0 || args.n == 0) return;
  const GemmArgs g = WithLeadingDimensions(args);
  if (g.k == 0) {
    if (!g.accumulate) ZeroRows(g);
    return;
  }
  const int64_t columns = std::min(g.n, kTileColumns);
  const int64_t rows = kTileElements / columns;
  for (int64_t i = 0; i < g.m; i += rows) {
    for (int64_t j = 0; j < g.n; j += columns) {
      const Tile tile = {i, j, std::min(rows, g.m - i),
                         std::min(columns, g.n - j)};
      if (g.accumulate) {
        AccumulateTile(g, tile);
      } else {
        ComputeTile(g, tile, g.c + i * g.ldc + j, g.ldc);
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
