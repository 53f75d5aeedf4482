#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/elementwise/elementwise.h"
#include "kernels/ops/math/pack.cuh"

namespace weft::ops {
namespace {

using cuda::Batch;
using cuda::Elements;
using cuda::Pack;

constexpr int kBatch = 4;  // packs of a thread
constexpr int kThreads = 256;

// Elements of a pack, by the size of those that are written: 16 bytes.
template <typename Out>
constexpr int kCountOf = cuda::kVector<Out>;

// Calls f(at, left, alignment, packs of `from`) for the packs of this thread.
// Where kAligned, the last pack may still be in part.
template <bool kAligned, int kCount, typename F, typename... From>
__device__ void MapPacks(int64_t count, F f, const From*... from) {
  const int64_t begin =
      (static_cast<int64_t>(blockIdx.x) * kBatch * blockDim.x + threadIdx.x) *
      kCount;
  const int64_t whole = kAligned ? count / kCount * kCount : count;
  const auto map = [&](int64_t at, const Pack<From, kCount>&... packs) {
    f(at, whole - at, std::bool_constant<kAligned>(), packs...);
  };
  cuda::ForEachPack<kAligned, kBatch, kCount>(
      begin, whole, map,
      Batch<From, kAligned, kBatch, kCount>(from, begin, whole)...);
  if (begin == 0 && whole < count) {
    const int64_t left = count - whole;
    f(whole, left, std::false_type(),
      cuda::LoadPack<false, kCount>(from + whole, left)...);
  }
}

// out[i] = f(from[i]...)
template <bool kAligned, typename F, typename Out, typename... From>
__global__ void __launch_bounds__(kThreads)
    MapKernel(int64_t count, F f, Out* out, const From*... from) {
  constexpr int kCount = kCountOf<Out>;
  const auto write = [&](int64_t at, int64_t left, auto aligned,
                         const Pack<From, kCount>&... packs) {
    cuda::FloatsOf<kCount> result;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      result.v[j] = f(cuda::Load(&packs.elements[j])...);
    }
    cuda::StoreFloats<decltype(aligned)::value>(result, out + at, left);
  };
  MapPacks<kAligned, kCount>(count, write, from...);
}

// Elements as they are, whatever they mean.
template <bool kAligned, typename T>
__global__ void __launch_bounds__(kThreads)
    CopyKernel(int64_t count, const T* from, T* to) {
  const auto write = [&](int64_t at, int64_t left, auto aligned,
                         const Pack<T, kCountOf<T>>& pack) {
    cuda::StorePack<decltype(aligned)::value>(pack, to + at, left);
  };
  MapPacks<kAligned, kCountOf<T>>(count, write, from);
}

template <typename Out>
int64_t BlocksOf(int64_t count) {
  return cuda::CeilDiv(count, int64_t{kCountOf<Out>} * kBatch * kThreads);
}

template <typename F, typename Out, typename... From>
void Map(int64_t count, F f, device::Stream& stream, Out* out,
         const From*... from) {
  const int64_t blocks = BlocksOf<Out>(count);
  const cudaStream_t handle = device::cuda::Handle(stream);
  if (cuda::PacksAligned(0, out, from...)) {
    MapKernel<true><<<blocks, kThreads, 0, handle>>>(count, f, out, from...);
  } else {
    MapKernel<false><<<blocks, kThreads, 0, handle>>>(count, f, out, from...);
  }
}

struct AddOf {
  float factor;
  __device__ float operator()(float a, float b) const {
    return fmaf(factor, b, a);
  }
};

struct ScaleBy {
  float factor;
  __device__ float operator()(float x) const { return factor * x; }
};

struct SigmoidOf {
  __device__ float operator()(float x) const {
    return 1.0f / (1.0f + expf(-x));
  }
};

struct SigmoidDgradOf {
  __device__ float operator()(float y, float dy) const {
    return dy * y * (1.0f - y);
  }
};

struct Value {
  float value;
  __device__ float operator()() const { return value; }
};

struct Same {
  __device__ float operator()(float x) const { return x; }
};

void AddForm(const AddArgs& args, device::Stream& stream) {
  if (args.count == 0) return;
  cuda::WithElementType(args.out.dtype, [&](auto type) {
    using T = decltype(type);
    Map(args.count, AddOf{args.factor}, stream, Elements<T>(args.out),
        Elements<T>(args.a), Elements<T>(args.b));
  });
  device::cuda::CheckLaunch("Add", stream);
}

void ScaleForm(const ScaleArgs& args, device::Stream& stream) {
  if (args.count == 0) return;
  cuda::WithElementType(args.out.dtype, [&](auto type) {
    using T = decltype(type);
    Map(args.count, ScaleBy{args.factor}, stream, Elements<T>(args.out),
        Elements<T>(args.x));
  });
  device::cuda::CheckLaunch("Scale", stream);
}

void SigmoidForm(const SigmoidArgs& args, device::Stream& stream) {
  if (args.count == 0) return;
  Map(args.count, SigmoidOf(), stream, args.out, args.x);
  device::cuda::CheckLaunch("Sigmoid", stream);
}

void SigmoidDgradForm(const SigmoidDgradArgs& args, device::Stream& stream) {
  if (args.count == 0) return;
  Map(args.count, SigmoidDgradOf(), stream, args.out, args.y, args.dy);
  device::cuda::CheckLaunch("SigmoidDgrad", stream);
}

void FillForm(const FillArgs& args, device::Stream& stream) {
  if (args.count == 0) return;
  cuda::WithElementType(args.out.dtype, [&](auto type) {
    Map(args.count, Value{args.value}, stream,
        Elements<decltype(type)>(args.out));
  });
  device::cuda::CheckLaunch("Fill", stream);
}

// Small pieces go by a kernel, which starts sooner than the copy engine and
// orders host memory by the stream alone; large ones by the engine.
void CopyElements(const CopyArgs& args, device::Stream& stream) {
  constexpr int64_t kLargeBytes = 1 << 20;
  const cudaStream_t handle = device::cuda::Handle(stream);
  const int64_t bytes = args.count * SizeOf(args.x.dtype);
  if (bytes >= kLargeBytes) {
    device::cuda::Check(cudaMemcpyAsync(args.out.data, args.x.data, bytes,
                                        cudaMemcpyDefault, handle),
                        "Copy", stream);
    return;
  }
  const bool aligned = cuda::PacksAligned(0, args.x.data, args.out.data);
  cuda::WithFormat(args.x.dtype, aligned, [&](auto type, auto is_aligned) {
    using T = decltype(type);
    CopyKernel<is_aligned.value>
        <<<BlocksOf<T>(args.count), kThreads, 0, handle>>>(
            args.count, Elements<T>(args.x), Elements<T>(args.out));
  });
  device::cuda::CheckLaunch("Copy", stream);
}

void CopyForm(const CopyArgs& args, device::Stream& stream) {
  if (args.count == 0 || args.x.data == args.out.data) return;
  if (args.x.dtype == args.out.dtype) {
    CopyElements(args, stream);
    return;
  }
  if (args.x.dtype == DType::kF32) {
    Map(args.count, Same(), stream, Elements<Bf16>(args.out),
        Elements<float>(args.x));
  } else {
    Map(args.count, Same(), stream, Elements<float>(args.out),
        Elements<Bf16>(args.x));
  }
  device::cuda::CheckLaunch("Copy", stream);
}

[[maybe_unused]] const bool kAdd = RegisterCudaForm<&Add>(&AddForm);
[[maybe_unused]] const bool kScale = RegisterCudaForm<&Scale>(&ScaleForm);
[[maybe_unused]] const bool kSigmoid = RegisterCudaForm<&Sigmoid>(&SigmoidForm);
[[maybe_unused]] const bool kSigmoidDgrad =
    RegisterCudaForm<&SigmoidDgrad>(&SigmoidDgradForm);
[[maybe_unused]] const bool kFill = RegisterCudaForm<&Fill>(&FillForm);
[[maybe_unused]] const bool kCopy = RegisterCudaForm<&Copy>(&CopyForm);

}  // namespace
}  // namespace weft::ops
