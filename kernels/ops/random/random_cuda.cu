#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/cuda.cuh"
#include "kernels/ops/random/philox.h"
#include "kernels/ops/random/random.h"

namespace weft::ops {
namespace {

constexpr int kThreads = 256;

// A thread makes the elements of one block of Philox that are in the range.
template <typename Make>
__global__ void __launch_bounds__(kThreads)
    FillBlocks(RandomRange range, Make make, float* out) {
  const int64_t block =
      range.begin / 4 + int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (block * 4 >= range.end) return;
  float values[4];
  make(Philox(range.seed, static_cast<uint64_t>(block), range.stream_id),
       values);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int64_t i = block * 4 + j;
    if (i >= range.begin && i < range.end) out[i - range.begin] = values[j];
  }
}

template <typename Make>
void Fill(const RandomRange& range, const Make& make, float* out,
          device::Stream& stream) {
  if (range.begin == range.end) return;
  const int64_t blocks = cuda::CeilDiv(range.end, 4) - range.begin / 4;
  FillBlocks<<<cuda::CeilDiv(blocks, kThreads), kThreads, 0,
               device::cuda::Handle(stream)>>>(range, make, out);
  device::cuda::CheckLaunch("random fill", stream);
}

void Normal(const RandomNormalArgs& args, device::Stream& stream) {
  Fill(args.range, NormalBlock{args.mean, args.stddev}, args.out, stream);
}

void Uniform(const RandomUniformArgs& args, device::Stream& stream) {
  Fill(args.range, UniformBlock(args.low, args.high, args.map), args.out,
       stream);
}

[[maybe_unused]] const bool kNormal = RegisterCudaForm<&RandomNormal>(&Normal);
[[maybe_unused]] const bool kUniform =
    RegisterCudaForm<&RandomUniform>(&Uniform);

}  // namespace
}  // namespace weft::ops
