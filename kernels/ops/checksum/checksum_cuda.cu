#include "kernels/ops/checksum/checksum.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/fold.cuh"

namespace weft::ops {
namespace {

constexpr int64_t kWord = sizeof(uint32_t);
// Words that a thread takes at a time.
constexpr int kRun = 4;

__device__ uint64_t Mix(uint32_t word, int64_t index) {
  uint64_t z = word + static_cast<uint64_t>(index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Word `index` of x, wherever x begins; what lies beyond the end is zero.
__device__ uint32_t WordAt(const unsigned char* x, int64_t bytes,
                           int64_t index) {
  uint32_t word = 0;
#pragma unroll
  for (int b = 0; b < kWord; ++b) {
    const int64_t at = index * kWord + b;
    if (at < bytes) word |= uint32_t{x[at]} << (8 * b);
  }
  return word;
}

__global__ void __launch_bounds__(cuda::kFoldThreads)
    SumParts(const unsigned char* x, int64_t bytes, bool aligned,
             uint64_t* partials) {
  const int64_t words = (bytes + kWord - 1) / kWord;
  const int64_t stride = int64_t{gridDim.x} * cuda::kFoldThreads * kRun;
  int64_t i = (int64_t{blockIdx.x} * cuda::kFoldThreads + threadIdx.x) * kRun;
  uint64_t sum = 0;
  for (; i < words; i += stride) {
    if (aligned && (i + kRun) * kWord <= bytes) {
      const uint4 run = *reinterpret_cast<const uint4*>(x + i * kWord);
      sum += Mix(run.x, i) + Mix(run.y, i + 1);
      sum += Mix(run.z, i + 2) + Mix(run.w, i + 3);
      continue;
    }
    for (int64_t j = i; j < words && j < i + kRun; ++j) {
      sum += Mix(WordAt(x, bytes, j), j);
    }
  }
  sum = cuda::FoldBlock(sum, cuda::Plus());
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

struct WriteSum {
  uint64_t* out;
  bool accumulate;
  __device__ void operator()(uint64_t sum) const {
    *out = accumulate ? *out + sum : sum;
  }
};

void Run(const ChecksumArgs& args, device::Stream& stream) {
  const int64_t blocks = cuda::FoldBlocks(args.bytes, kRun * kWord);
  auto* partials = static_cast<uint64_t*>(
      device::cuda::Workspace(stream, blocks * sizeof(uint64_t)));
  if (partials == nullptr) return;
  SumParts<<<blocks, cuda::kFoldThreads, 0, device::cuda::Handle(stream)>>>(
      static_cast<const unsigned char*>(args.x), args.bytes,
      cuda::IsAligned(args.x), partials);
  device::cuda::CheckLaunch("Checksum", stream);
  cuda::Fold(partials, blocks, uint64_t{0}, cuda::Plus(),
             WriteSum{args.out, args.accumulate}, stream);
}

[[maybe_unused]] const bool kRegistered = RegisterCudaForm<&Checksum>(&Run);

}  // namespace
}  // namespace weft::ops
