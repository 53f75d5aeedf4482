#include "kernels/device/cuda/launch.h"
#include "kernels/ops/gemm/product_cuda.h"
#include "kernels/ops/math/cuda.cuh"

namespace weft::ops::internal {
namespace {

constexpr int kThreads = 256;

// Rows of `columns` elements, `leading` elements apart.
struct Rows {
  int64_t count;
  int64_t columns;
  int64_t leading;
  bool has_vectors;  // rows begin on 16-byte boundaries
};

// A thread adds 16 bytes of a row.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    AddKernel(Rows rows, const T* from, T* to) {
  constexpr int kCount = cuda::kVector<T>;
  const int64_t vectors = (rows.columns + kCount - 1) / kCount;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t row = i / vectors;
  if (row >= rows.count) return;
  const int64_t column = i % vectors * kCount;
  from += row * rows.leading + column;
  to += row * rows.leading + column;
  if (rows.has_vectors && column + kCount <= rows.columns) {
    float sum[kCount];
    float value[kCount];
    cuda::LoadVector(to, sum);
    cuda::LoadVector(from, value);
#pragma unroll
    for (int j = 0; j < kCount; ++j) sum[j] += value[j];
    cuda::StoreVector(to, sum);
    return;
  }
  for (int j = 0; j < kCount && column + j < rows.columns; ++j) {
    cuda::Store(to + j, cuda::Load(to + j) + cuda::Load(from + j));
  }
}

}  // namespace

void AddProduct(const GemmArgs& g, const void* product,
                device::Stream& stream) {
  cuda::WithElementType(g.c.dtype, [&](auto type) {
    using T = decltype(type);
    const int64_t count = cuda::kVector<T>;
    const Rows rows = {g.m, g.n, g.ldc,
                       cuda::IsAligned(g.c.data) && cuda::IsAligned(product) &&
                           g.ldc % count == 0};
    const int64_t threads = g.m * cuda::CeilDiv(g.n, count);
    AddKernel<<<static_cast<unsigned>(cuda::CeilDiv(threads, kThreads)),
                kThreads, 0, device::cuda::Handle(stream)>>>(
        rows, static_cast<const T*>(product), cuda::Elements<T>(g.c));
    device::cuda::CheckLaunch("AddProduct", stream);
  });
}

}  // namespace weft::ops::internal
