#include "kernels/ops/cuda_form.h"
#include "kernels/ops/gemm/product_cuda.h"
#include "kernels/ops/grouped_gemm/grouped_gemm.h"

namespace weft::ops {
namespace {

using internal::Product;
using internal::Ragged;

int64_t MaxRows(const GroupedShape& s) {
  return s.max_rows != 0 ? s.max_rows : s.offsets[s.num_experts];
}

Product MakeProduct(const GroupedShape& s, Ragged ragged) {
  Product product;
  product.ragged = ragged;
  product.groups = s.num_experts;
  product.offsets = s.offsets;
  product.stride = s.weight_stride != 0 ? s.weight_stride : s.in * s.out;
  return product;
}

void Run(Product product, device::Stream& stream) {
  product.gemm = internal::WithLeadingDimensions(product.gemm);
  if (internal::IsForWgmma(product)) {
    internal::WgmmaProduct(product, stream);
  } else {
    internal::SimtProduct(product, stream);
  }
}

void Forward(const GroupedForwardArgs& args, device::Stream& stream) {
  Product product = MakeProduct(args.shape, Ragged::kRows);
  GemmArgs& g = product.gemm;
  g.transpose_b = true;
  g.m = MaxRows(args.shape);
  g.n = args.shape.out;
  g.k = args.shape.in;
  g.a = args.x;
  g.b = args.weight;
  g.c = args.y;
  Run(product, stream);
}

void Dgrad(const GroupedDgradArgs& args, device::Stream& stream) {
  Product product = MakeProduct(args.shape, Ragged::kRows);
  GemmArgs& g = product.gemm;
  g.m = MaxRows(args.shape);
  g.n = args.shape.in;
  g.k = args.shape.out;
  g.a = args.dy;
  g.b = args.weight;
  g.c = args.dx;
  Run(product, stream);
}

void Wgrad(const GroupedWgradArgs& args, device::Stream& stream) {
  Product product = MakeProduct(args.shape, Ragged::kDepth);
  GemmArgs& g = product.gemm;
  g.transpose_a = true;
  g.m = args.shape.out;
  g.n = args.shape.in;
  g.k = MaxRows(args.shape);
  g.accumulate = args.accumulate;
  g.a = args.dy;
  g.b = args.x;
  g.c = args.dweight;
  Run(product, stream);
}

[[maybe_unused]] const bool kForward =
    RegisterCudaForm<&GroupedForward>(&Forward);
[[maybe_unused]] const bool kDgrad = RegisterCudaForm<&GroupedDgrad>(&Dgrad);
[[maybe_unused]] const bool kWgrad = RegisterCudaForm<&GroupedWgrad>(&Wgrad);

}  // namespace
}  // namespace weft::ops
