// A block a row. The first packs of a row stay in registers between the two
// passes over it; a row too wide for that is read twice.
#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/column_sums.cuh"
#include "kernels/ops/math/pack.cuh"
#include "kernels/ops/rms_norm/rms_norm.h"

namespace weft::ops {
namespace {

using cuda::Batch;
using cuda::Elements;
using cuda::Floats;
using cuda::ForEachPack;
using cuda::kPack;
using cuda::Pack;
using cuda::RowBegin;
using cuda::RowStride;
using cuda::Widen;

// Packs that a thread loads at once and keeps; dgrad keeps two rows.
constexpr int kForwardBatch = 4;
constexpr int kDgradBatch = 2;

template <typename T, bool kAligned>
__global__ void __launch_bounds__(cuda::kMaxRowThreads)
    ForwardKernel(const RmsNormForwardArgs args) {
  const int64_t hidden = args.hidden;
  const int64_t offset = blockIdx.x * hidden;
  const T* x = Elements<T>(args.x) + offset;
  const T* weights = Elements<T>(args.weight);
  T* y = Elements<T>(args.y) + offset;

  using RowBatch = Batch<T, kAligned, kForwardBatch>;
  const RowBatch first(x, RowBegin(), hidden);
  float squares = 0;
  const auto add_squares = [&](int64_t, const Pack<T>& pack) {
    const Floats v = Widen(pack);
#pragma unroll
    for (int j = 0; j < kPack; ++j) squares = fmaf(v.v[j], v.v[j], squares);
  };
  ForEachPack(RowBegin(), hidden, add_squares, first);
  const int64_t rest = RowBegin() + kForwardBatch * RowStride();
  for (int64_t at = rest; at < hidden; at += kForwardBatch * RowStride()) {
    ForEachPack(at, hidden, add_squares, RowBatch(x, at, hidden));
  }

  const float mean = cuda::RowSum(squares) / static_cast<float>(hidden);
  const float rstd = 1.0f / sqrtf(mean + args.eps);
  if (threadIdx.x == 0) args.rstd[blockIdx.x] = rstd;

  const auto write = [&](int64_t at, const Pack<T>& pack) {
    Floats v = Widen(pack);
    const Floats weight =
        Widen(cuda::LoadPack<kAligned>(weights + at, hidden - at));
#pragma unroll
    for (int j = 0; j < kPack; ++j) v.v[j] = v.v[j] * rstd * weight.v[j];
    cuda::StoreFloats<kAligned>(v, y + at, hidden - at);
  };
  ForEachPack(RowBegin(), hidden, write, first);
  for (int64_t at = rest; at < hidden; at += kForwardBatch * RowStride()) {
    ForEachPack(at, hidden, write, RowBatch(x, at, hidden));
  }
}

void Forward(const RmsNormForwardArgs& args, device::Stream& stream) {
  if (args.rows == 0) return;
  const bool aligned = cuda::PacksAligned(args.hidden, args.x.data,
                                          args.weight.data, args.y.data);
  cuda::WithFormat(args.y.dtype, aligned, [&](auto type, auto is_aligned) {
    ForwardKernel<decltype(type), is_aligned.value>
        <<<args.rows, cuda::RowThreads(args.hidden, kForwardBatch), 0,
           device::cuda::Handle(stream)>>>(args);
  });
  device::cuda::CheckLaunch("RmsNormForward", stream);
}

// What a row of dgrad shares: t = dy * weight, xhat = x * rstd.
template <typename T, bool kAligned>
struct DgradRow {
  const T* x;
  const T* dy;
  const T* add;  // or null
  const T* weights;
  T* dx;
  int64_t hidden;
  float rstd;

  __device__ Floats Weight(int64_t at) const {
    return Widen(cuda::LoadPack<kAligned>(weights + at, hidden - at));
  }

  // products + sum(t * xhat)
  __device__ float AddProducts(int64_t at, const Pack<T>& x_pack,
                               const Pack<T>& dy_pack, float products) const {
    const Floats weight = Weight(at);
    const Floats v = Widen(x_pack);
    const Floats d = Widen(dy_pack);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      products = fmaf(d.v[j] * weight.v[j], v.v[j] * rstd, products);
    }
    return products;
  }

  __device__ void Write(int64_t at, const Pack<T>& x_pack,
                        const Pack<T>& dy_pack, const Pack<T>& add_pack,
                        float mean) const {
    const Floats weight = Weight(at);
    const Floats v = Widen(x_pack);
    Floats d = Widen(dy_pack);
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      const float t = d.v[j] * weight.v[j];
      d.v[j] = __fmul_rn(rstd, fmaf(-(v.v[j] * rstd), mean, t));
    }
    if (add != nullptr) {
      const Floats more = Widen(add_pack);
#pragma unroll
      for (int j = 0; j < kPack; ++j) d.v[j] = __fadd_rn(more.v[j], d.v[j]);
    }
    cuda::StoreFloats<kAligned>(d, dx + at, hidden - at);
  }
};

template <typename T, bool kAligned>
__global__ void __launch_bounds__(cuda::kMaxRowThreads)
    DgradKernel(const RmsNormDgradArgs args) {
  const int64_t hidden = args.hidden;
  const int64_t offset = blockIdx.x * hidden;
  const T* add = Elements<T>(args.add);
  const DgradRow<T, kAligned> row = {Elements<T>(args.x) + offset,
                                     Elements<T>(args.dy) + offset,
                                     add == nullptr ? nullptr : add + offset,
                                     Elements<T>(args.weight),
                                     Elements<T>(args.dx) + offset,
                                     hidden,
                                     args.rstd[blockIdx.x]};

  using RowBatch = Batch<T, kAligned, kDgradBatch>;
  const RowBatch x(row.x, RowBegin(), hidden);
  const RowBatch dy(row.dy, RowBegin(), hidden);
  const int64_t added = add == nullptr ? 0 : hidden;
  const RowBatch adds(row.add, RowBegin(), added);
  float products = 0;
  const auto add_products = [&](int64_t at, const Pack<T>& x_pack,
                                const Pack<T>& dy_pack) {
    products = row.AddProducts(at, x_pack, dy_pack, products);
  };
  ForEachPack(RowBegin(), hidden, add_products, x, dy);
  const int64_t rest = RowBegin() + kDgradBatch * RowStride();
  for (int64_t at = rest; at < hidden; at += kDgradBatch * RowStride()) {
    ForEachPack(at, hidden, add_products, RowBatch(row.x, at, hidden),
                RowBatch(row.dy, at, hidden));
  }

  const float mean = cuda::RowSum(products) / static_cast<float>(hidden);
  const auto write = [&](int64_t at, const Pack<T>& x_pack,
                         const Pack<T>& dy_pack, const Pack<T>& add_pack) {
    row.Write(at, x_pack, dy_pack, add_pack, mean);
  };
  ForEachPack(RowBegin(), hidden, write, x, dy, adds);
  for (int64_t at = rest; at < hidden; at += kDgradBatch * RowStride()) {
    ForEachPack(at, hidden, write, RowBatch(row.x, at, hidden),
                RowBatch(row.dy, at, hidden), RowBatch(row.add, at, added));
  }
}

void Dgrad(const RmsNormDgradArgs& args, device::Stream& stream) {
  if (args.rows == 0) return;
  const bool aligned =
      cuda::PacksAligned(args.hidden, args.x.data, args.weight.data,
                         args.dy.data, args.add.data, args.dx.data);
  cuda::WithFormat(args.dx.dtype, aligned, [&](auto type, auto is_aligned) {
    DgradKernel<decltype(type), is_aligned.value>
        <<<args.rows, cuda::RowThreads(args.hidden, kDgradBatch), 0,
           device::cuda::Handle(stream)>>>(args);
  });
  device::cuda::CheckLaunch("RmsNormDgrad", stream);
}

// dy * xhat
template <typename T, bool kAligned>
struct WgradSource {
  const T* x;
  const T* dy;
  const float* rstd;
  int64_t hidden;

  struct Loaded {
    Pack<T> x;
    Pack<T> dy;
    float rstd;
  };

  __device__ Loaded Load(int64_t row, int64_t column, int64_t left) const {
    const int64_t at = row * hidden + column;
    return {cuda::LoadPack<kAligned>(x + at, left),
            cuda::LoadPack<kAligned>(dy + at, left), rstd[row]};
  }

  __device__ Floats Values(const Loaded& loaded) const {
    const Floats v = Widen(loaded.x);
    Floats d = Widen(loaded.dy);
#pragma unroll
    for (int j = 0; j < kPack; ++j) d.v[j] *= v.v[j] * loaded.rstd;
    return d;
  }
};

void Wgrad(const RmsNormWgradArgs& args, device::Stream& stream) {
  const bool aligned =
      cuda::PacksAligned(args.hidden, args.x.data, args.dy.data);
  cuda::WithFormat(args.dy.dtype, aligned, [&](auto type, auto is_aligned) {
    using T = decltype(type);
    const WgradSource<T, is_aligned.value> source = {
        Elements<T>(args.x), Elements<T>(args.dy), args.rstd, args.hidden};
    cuda::SumColumns(source, args.rows, args.hidden, args.dweight,
                     args.accumulate, stream);
  });
}

[[maybe_unused]] const bool kForward =
    RegisterCudaForm<&RmsNormForward>(&Forward);
[[maybe_unused]] const bool kDgrad = RegisterCudaForm<&RmsNormDgrad>(&Dgrad);
[[maybe_unused]] const bool kWgrad = RegisterCudaForm<&RmsNormWgrad>(&Wgrad);

}  // namespace
}  // namespace weft::ops
