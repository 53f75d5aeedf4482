#include "kernels/ops/cuda_form.h"
#include "kernels/ops/finite/finite.h"
#include "kernels/ops/math/fold.cuh"

namespace weft::ops {
namespace {

constexpr int64_t kNone = INT64_MAX;

// Formats by their bits: what has all of the exponent set is not finite.
__device__ bool IsFinite(uint16_t bits) { return (~bits & 0x7f80) != 0; }
__device__ bool IsFinite(uint32_t bits) { return (~bits & 0x7f800000u) != 0; }
__device__ bool IsFinite(uint64_t bits) {
  return (~bits & (uint64_t{0x7ff} << 52)) != 0;
}

__device__ double Value(uint16_t bits) {
  return __uint_as_float(uint32_t{bits} << 16);
}
__device__ double Value(uint32_t bits) { return __uint_as_float(bits); }
__device__ double Value(uint64_t bits) { return __longlong_as_double(bits); }

// partials[block] = the first index that the block finds, or kNone.
template <typename Bits>
__global__ void __launch_bounds__(cuda::kFoldThreads)
    FindParts(const Bits* x, int64_t count, const int64_t* row_count,
              int64_t columns, int64_t* partials) {
  if (row_count != nullptr) count = min(count, *row_count * columns);
  const int64_t stride = int64_t{gridDim.x} * cuda::kFoldThreads;
  int64_t i = int64_t{blockIdx.x} * cuda::kFoldThreads + threadIdx.x;
  int64_t found = kNone;
#pragma unroll 4
  for (; i < count; i += stride) {
    if (!IsFinite(x[i]) && i < found) found = i;
  }
  found = cuda::FoldBlock(found, cuda::Least());
  if (threadIdx.x == 0) partials[blockIdx.x] = found;
}

template <typename Bits>
struct WriteFound {
  const Bits* x;
  NonFinite* out;
  __device__ void operator()(int64_t found) const {
    out->index = found == kNone ? -1 : found;
    out->value = found == kNone ? 0 : Value(x[found]);
  }
};

template <typename Bits>
void Find(const FindNonFiniteArgs& args, device::Stream& stream) {
  const int64_t blocks = cuda::FoldBlocks(args.count, 1);
  auto* partials = static_cast<int64_t*>(
      device::cuda::Workspace(stream, blocks * sizeof(int64_t)));
  if (partials == nullptr) return;
  const auto* x = static_cast<const Bits*>(args.x);
  FindParts<<<blocks, cuda::kFoldThreads, 0, device::cuda::Handle(stream)>>>(
      x, args.count, args.row_count, args.columns, partials);
  device::cuda::CheckLaunch("FindNonFinite", stream);
  cuda::Fold(partials, blocks, kNone, cuda::Least(),
             WriteFound<Bits>{x, args.out}, stream);
}

void Run(const FindNonFiniteArgs& args, device::Stream& stream) {
  switch (args.dtype) {
    case DType::kF64:
      Find<uint64_t>(args, stream);
      break;
    case DType::kBf16:
      Find<uint16_t>(args, stream);
      break;
    default:
      Find<uint32_t>(args, stream);
      break;
  }
}

[[maybe_unused]] const bool kRegistered =
    RegisterCudaForm<&FindNonFinite>(&Run);

}  // namespace
}  // namespace weft::ops
