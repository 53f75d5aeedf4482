// A block handles one group of one row.
#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/gated_norm/gated_norm.h"
#include "kernels/ops/math/column_sums.cuh"
#include "kernels/ops/math/pack.cuh"
#include "kernels/ops/math/sigmoid.cuh"

namespace weft::ops {
namespace {

using cuda::Elements;
using cuda::Floats;
using cuda::kPack;

constexpr int kThreads = 128;

// The group of this block; see gated_norm_cpu.cc.
struct Group {
  int64_t width;
  int64_t y;
  int64_t z;
  int64_t column;

  __device__ explicit Group(const GatedNormShape& s)
      : width(s.group_columns()) {
    const int64_t row = blockIdx.x / s.groups;
    column = blockIdx.x % s.groups * width;
    y = row * s.columns + column;
    z = row * s.z_stride + column;
  }
};

// One element, with what follows from it.
struct Gated {
  float y;
  float z;
  float sigmoid;
  float silu;

  template <typename T>
  __device__ Gated(const T* y_at, const T* z_at)
      : y(cuda::Load(y_at)),
        z(cuda::Load(z_at)),
        sigmoid(cuda::Sigmoid(z)),
        silu(z * sigmoid) {}

  __device__ float value() const { return y * silu; }
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(const GatedNormForwardArgs args) {
  const Group group(args.shape);
  const T* y = Elements<T>(args.y) + group.y;
  const T* z = Elements<T>(args.z) + group.z;
  const T* weights = Elements<T>(args.weight) + group.column;
  T* out = Elements<T>(args.out) + group.y;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < group.width; i += kThreads) {
    const float g = Gated(y + i, z + i).value();
    squares = fmaf(g, g, squares);
  }
  const float mean =
      cuda::BlockSum<kThreads>(squares) / static_cast<float>(group.width);
  const float rstd = 1.0f / sqrtf(mean + args.eps);
  if (threadIdx.x == 0) args.rstd[blockIdx.x] = rstd;
  for (int64_t i = threadIdx.x; i < group.width; i += kThreads) {
    const float g = Gated(y + i, z + i).value();
    cuda::Store(out + i, g * rstd * cuda::Load(weights + i));
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    DgradKernel(const GatedNormBackwardArgs args) {
  const Group group(args.shape);
  const T* y = Elements<T>(args.y) + group.y;
  const T* z = Elements<T>(args.z) + group.z;
  const T* weights = Elements<T>(args.weight) + group.column;
  const T* d_out = Elements<T>(args.d_out) + group.y;
  T* dy = Elements<T>(args.dy) + group.y;
  T* dz = Elements<T>(args.dz) + group.z;
  const float rstd = args.rstd[blockIdx.x];
  float products = 0;
  for (int64_t i = threadIdx.x; i < group.width; i += kThreads) {
    const float t = cuda::Load(d_out + i) * cuda::Load(weights + i);
    products = fmaf(t, Gated(y + i, z + i).value() * rstd, products);
  }
  const float mean =
      cuda::BlockSum<kThreads>(products) / static_cast<float>(group.width);
  for (int64_t i = threadIdx.x; i < group.width; i += kThreads) {
    const Gated at(y + i, z + i);
    const float t = cuda::Load(d_out + i) * cuda::Load(weights + i);
    const float dg = rstd * fmaf(-(at.value() * rstd), mean, t);
    cuda::Store(dy + i, dg * at.silu);
    cuda::Store(dz + i,
                dg * at.y * (at.sigmoid * (1.0f + at.z * (1.0f - at.sigmoid))));
  }
}

// d_out * ghat
template <typename T>
struct WgradSource {
  GatedNormShape shape;
  const T* y;
  const T* z;
  const float* rstd;
  const T* d_out;

  using Loaded = Floats;

  __device__ Floats Load(int64_t row, int64_t column, int64_t left) const {
    Floats values = {};
    for (int j = 0; j < kPack; ++j) {
      if (j >= left) continue;
      const int64_t at = row * shape.columns + column + j;
      const Gated gated(y + at, z + row * shape.z_stride + column + j);
      const int64_t group = (column + j) / shape.group_columns();
      values.v[j] = cuda::Load(d_out + at) *
                    (gated.value() * rstd[row * shape.groups + group]);
    }
    return values;
  }
  __device__ Floats Values(const Floats& loaded) const { return loaded; }
};

void Forward(const GatedNormForwardArgs& args, device::Stream& stream) {
  const GatedNormShape& s = args.shape;
  if (s.rows == 0) return;
  cuda::WithElementType(args.out.dtype, [&](auto type) {
    ForwardKernel<decltype(type)>
        <<<s.rows * s.groups, kThreads, 0, device::cuda::Handle(stream)>>>(
            args);
  });
  device::cuda::CheckLaunch("GatedNormForward", stream);
}

void Backward(const GatedNormBackwardArgs& args, device::Stream& stream) {
  const GatedNormShape& s = args.shape;
  cuda::WithElementType(args.dy.dtype, [&](auto type) {
    using T = decltype(type);
    // First what reads d_out, which may be dy.
    if (args.dweight != nullptr) {
      const WgradSource<T> source = {s, Elements<T>(args.y),
                                     Elements<T>(args.z), args.rstd,
                                     Elements<T>(args.d_out)};
      cuda::SumColumns(source, s.rows, s.columns, args.dweight, args.accumulate,
                       stream);
    }
    if (s.rows == 0) return;
    DgradKernel<T>
        <<<s.rows * s.groups, kThreads, 0, device::cuda::Handle(stream)>>>(
            args);
  });
  device::cuda::CheckLaunch("GatedNormBackward", stream);
}

[[maybe_unused]] const bool kForward =
    RegisterCudaForm<&GatedNormForward>(&Forward);
[[maybe_unused]] const bool kBackward =
    RegisterCudaForm<&GatedNormBackward>(&Backward);

}  // namespace
}  // namespace weft::ops
