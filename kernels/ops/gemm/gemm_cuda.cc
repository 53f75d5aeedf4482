#include <algorithm>
#include <cstddef>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/gemm/blaslt_cuda.h"
#include "kernels/ops/gemm/gemm.h"
#include "kernels/ops/gemm/parts.h"
#include "kernels/ops/gemm/product_cuda.h"

namespace weft::ops {
namespace {

// Whether the library's one rounding of alpha * product + C is that of adding a
// product computed apart: C holds the product exactly as it was summed.
bool AddsInPlace(const GemmArgs& g) {
  return g.c.dtype == DType::kF32 && g.alpha == 1.0f;
}

// False when the library has no algorithm.
bool TryBlasLt(const GemmArgs& g, device::Stream& stream) {
  const bool apart = g.accumulate && !AddsInPlace(g);
  const int64_t product_bytes =
      apart ? g.m * g.ldc * SizeOf(g.c.dtype) : int64_t{0};
  auto* const workspace = static_cast<std::byte*>(device::cuda::Workspace(
      stream, internal::kBlasLtWorkspaceBytes + product_bytes));
  if (workspace == nullptr) return true;
  GemmArgs product = g;
  if (apart) {
    product.accumulate = false;
    product.c.data = workspace + internal::kBlasLtWorkspaceBytes;
  }
  if (!internal::BlasLtGemm(product, workspace, stream)) return false;
  if (apart) internal::AddProduct(g, product.c.data, stream);
  return true;
}

void RunPart(const GemmArgs& g, device::Stream& stream) {
  if (g.k > 0 && internal::IsForBlasLt(g) && TryBlasLt(g, stream)) return;
  internal::Product product;
  product.gemm = g;
  internal::SimtProduct(product, stream);
}

void Run(const GemmArgs& args, device::Stream& stream) {
  if (args.m == 0 || args.n == 0) return;
  const GemmArgs g = internal::WithLeadingDimensions(args);
  // Whether it is added or not, so that both give the same bits.
  const int64_t rows =
      AddsInPlace(g) ? g.m
                     : internal::RowsOfPart(g.m, g.ldc * SizeOf(g.c.dtype));
  for (int64_t row = 0; row < g.m; row += rows) {
    GemmArgs part = g;
    part.m = std::min(rows, g.m - row);
    part.a = g.a + row * (g.transpose_a ? 1 : g.lda);
    part.c = g.c + row * g.ldc;
    RunPart(part, stream);
  }
}

[[maybe_unused]] const bool kGemm = RegisterCudaForm<&Gemm>(&Run);

}  // namespace
}  // namespace weft::ops
