#include <cstddef>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/gemm/blaslt_cuda.h"
#include "kernels/ops/gemm/gemm.h"
#include "kernels/ops/gemm/product_cuda.h"

namespace weft::ops {
namespace {

void ZeroRows(const GemmArgs& g, device::Stream& stream) {
  const int64_t size = SizeOf(g.c.dtype);
  device::cuda::Check(cudaMemset2DAsync(g.c.data, g.ldc * size, 0, g.n * size,
                                        g.m, device::cuda::Handle(stream)),
                      "Gemm: cudaMemset2DAsync", stream);
}

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

void Run(const GemmArgs& args, device::Stream& stream) {
  if (args.m == 0 || args.n == 0) return;
  const GemmArgs g = internal::WithLeadingDimensions(args);
  if (g.k == 0) {
    if (!g.accumulate) ZeroRows(g, stream);
    return;
  }
  if (internal::IsForBlasLt(g) && TryBlasLt(g, stream)) return;
  internal::Product product;
  product.gemm = g;
  internal::SimtProduct(product, stream);
}

[[maybe_unused]] const bool kGemm = RegisterCudaForm<&Gemm>(&Run);

}  // namespace
}  // namespace weft::ops
