// What optimizers share: a pass over a segment that updates weights and state
// in place, element by element.
//
// A rule is a struct with `kArrays`, how many fp32 arrays it updates, and
//
//   // Called once by each thread, first.
//   __device__ void Begin(const OptimizerScalars& scalars);
//   // x[0] is the weight, what follows is state.
//   __device__ void operator()(float grad, float (&x)[kArrays]) const;
#ifndef WEFT_KERNELS_OPS_MATH_UPDATE_CUH_
#define WEFT_KERNELS_OPS_MATH_UPDATE_CUH_

#include "kernels/ops/math/fold.cuh"
#include "kernels/ops/optimizer_scalars.h"

namespace weft::ops::cuda {

// Elements that a thread takes at a time.
inline constexpr int kRun = 4;

// Requires: aligned to kRun elements.
__device__ inline void LoadRun(const float* at, float (&out)[kRun]) {
  LoadVector(at, out);
}
__device__ inline void LoadRun(const Bf16* at, float (&out)[kRun]) {
  const uint2 words = *reinterpret_cast<const uint2*>(at);
  out[0] = __uint_as_float(words.x << 16);
  out[1] = __uint_as_float(words.x & 0xFFFF0000u);
  out[2] = __uint_as_float(words.y << 16);
  out[3] = __uint_as_float(words.y & 0xFFFF0000u);
}

template <int kArrays>
struct Segment {
  int64_t count;
  float* arrays[kArrays];
};

// Applies the rule; returns the bits of the weight that change.
template <typename Rule>
__device__ inline uint32_t Apply(const Rule& rule, float grad,
                                 float (&x)[Rule::kArrays]) {
  const uint32_t before = __float_as_uint(x[0]);
  rule(grad, x);
  return before ^ __float_as_uint(x[0]);
}

// Elements [i, i + kRun).
template <typename Rule, typename T>
__device__ inline uint32_t UpdateRun(const Rule& rule, const T* grad,
                                     const Segment<Rule::kArrays>& segment,
                                     int64_t i) {
  constexpr int kArrays = Rule::kArrays;
  float g[kRun], values[kArrays][kRun];
  LoadRun(grad + i, g);
#pragma unroll
  for (int a = 0; a < kArrays; ++a) {
    LoadVector(segment.arrays[a] + i, values[a]);
  }
  uint32_t changed = 0;
#pragma unroll
  for (int j = 0; j < kRun; ++j) {
    float x[kArrays];
#pragma unroll
    for (int a = 0; a < kArrays; ++a) x[a] = values[a][j];
    changed |= Apply(rule, g[j], x);
#pragma unroll
    for (int a = 0; a < kArrays; ++a) values[a][j] = x[a];
  }
#pragma unroll
  for (int a = 0; a < kArrays; ++a) {
    StoreVector(segment.arrays[a] + i, values[a]);
  }
  return changed;
}

template <typename Rule, typename T>
__device__ inline uint32_t UpdateOne(const Rule& rule, const T* grad,
                                     const Segment<Rule::kArrays>& segment,
                                     int64_t i) {
  float x[Rule::kArrays];
#pragma unroll
  for (int a = 0; a < Rule::kArrays; ++a) x[a] = segment.arrays[a][i];
  const uint32_t changed = Apply(rule, Load(grad + i), x);
#pragma unroll
  for (int a = 0; a < Rule::kArrays; ++a) segment.arrays[a][i] = x[a];
  return changed;
}

// partials[block] = all bits of weights that a block changes, when not null.
template <typename Rule, typename T>
__global__ void __launch_bounds__(kFoldThreads)
    UpdateKernel(Rule rule, const OptimizerScalars* scalars, const T* grad,
                 Segment<Rule::kArrays> segment, bool aligned,
                 uint32_t* partials) {
  rule.Begin(*scalars);
  uint32_t changed = 0;
  const int64_t count = scalars->skip != 0 ? 0 : segment.count;
  const int64_t stride = int64_t{gridDim.x} * kFoldThreads * kRun;
  int64_t i = (int64_t{blockIdx.x} * kFoldThreads + threadIdx.x) * kRun;
  for (; i < count; i += stride) {
    if (aligned && i + kRun <= count) {
      changed |= UpdateRun(rule, grad, segment, i);
      continue;
    }
    for (int64_t j = i; j < count && j < i + kRun; ++j) {
      changed |= UpdateOne(rule, grad, segment, j);
    }
  }
  if (partials == nullptr) return;
  changed = FoldBlock(changed, Or());
  if (threadIdx.x == 0) partials[blockIdx.x] = changed;
}

struct OrInto {
  uint32_t* out;
  __device__ void operator()(uint32_t bits) const {
    if (bits != 0) *out |= bits;
  }
};

// `changed_bits` may be null, and may lie in host memory.
template <typename Rule>
void Update(const char* name, const Rule& rule, const OptimizerScalars* scalars,
            const ConstTensor& grad, const Segment<Rule::kArrays>& segment,
            uint32_t* changed_bits, device::Stream& stream) {
  if (segment.count == 0) return;
  const int64_t blocks = FoldBlocks(segment.count, kRun);
  uint32_t* partials = nullptr;
  if (changed_bits != nullptr) {
    partials = static_cast<uint32_t*>(
        device::cuda::Workspace(stream, blocks * sizeof(uint32_t)));
    if (partials == nullptr) return;
  }
  bool aligned = IsAligned(grad.data, kRun * SizeOf(grad.dtype));
  for (const float* array : segment.arrays) {
    aligned = aligned && IsAligned(array);
  }
  WithElementType(grad.dtype, [&](auto type) {
    UpdateKernel<<<blocks, kFoldThreads, 0, device::cuda::Handle(stream)>>>(
        rule, scalars, Elements<decltype(type)>(grad), segment, aligned,
        partials);
  });
  device::cuda::CheckLaunch(name, stream);
  if (changed_bits == nullptr) return;
  Fold(partials, blocks, uint32_t{0}, Or(), OrInto{changed_bits}, stream);
}

}  // namespace weft::ops::cuda

#endif  // WEFT_KERNELS_OPS_MATH_UPDATE_CUH_
