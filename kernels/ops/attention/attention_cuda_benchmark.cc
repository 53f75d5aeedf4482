// Times attention in bf16 on a GPU; prints the rate of the causal half.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "base/bf16.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/device/cuda/launch.h"
#include "kernels/device/device.h"
#include "kernels/ops/attention/attention.h"

namespace weft::ops {
namespace {

constexpr int kRuns = 20;

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

std::unique_ptr<device::Buffer> Allocate(device::Device& device,
                                         int64_t bytes) {
  auto buffer = device.Allocate(bytes, device::MemoryCategory::kArena);
  Require(buffer.status());
  return *std::move(buffer);
}

std::unique_ptr<device::Buffer> RandomHalves(device::Device& device,
                                             int64_t count) {
  std::mt19937_64 generator(1);
  std::normal_distribution<float> normal;
  std::vector<Bf16> values(count);
  for (Bf16& value : values) value = ToBf16(normal(generator));
  auto buffer = Allocate(device, count * sizeof(Bf16));
  cudaMemcpy(buffer->data(), values.data(), count * sizeof(Bf16),
             cudaMemcpyHostToDevice);
  return buffer;
}

// Seconds of a call: the median of kRuns, after a first.
template <typename F>
double Seconds(device::Stream& stream, F&& call) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::vector<double> seconds;
  for (int run = 0; run <= kRuns; ++run) {
    cudaEventRecord(begin, device::cuda::Handle(stream));
    call();
    cudaEventRecord(end, device::cuda::Handle(stream));
    Require(stream.Synchronize());
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (run > 0) seconds.push_back(ms * 1e-3);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
  return seconds[kRuns / 2];
}

Tensor Halves(const device::Buffer& buffer) {
  return {buffer.data(), DType::kBf16};
}

void Time(const AttentionShape& s, device::Device& device,
          device::Stream& stream) {
  const auto qkv = RandomHalves(device, s.tokens() * s.qkv_width());
  const auto d_out = RandomHalves(device, s.tokens() * s.out_width());
  const auto out = Allocate(device, d_out->bytes());
  const auto d_qkv = Allocate(device, qkv->bytes());
  const auto lse_memory = Allocate(device, s.tokens() * s.num_heads * 4);
  float* lse = reinterpret_cast<float*>(lse_memory->data());
  const double forward = Seconds(stream, [&] {
    AttentionForward({s, Halves(*qkv), Halves(*out), lse, nullptr}, stream);
  });
  const double backward = Seconds(stream, [&] {
    AttentionBackward({s, Halves(*qkv), Halves(*out), lse, Halves(*d_out),
                       Halves(*d_qkv), nullptr},
                      stream);
  });
  // Two products forward, five backward; values are in one and in two of them.
  const double pairs = 0.5 * s.seq * (s.seq + 1) * s.batch * s.num_heads;
  const double product = 2 * pairs * s.head_dim * 1e-12;
  const double of_values = 2 * pairs * s.value_dim() * 1e-12;
  std::printf(
      "batch %ld, seq %ld, heads %ld/%ld of %ld/%ld: forward %.3f ms, %.0f "
      "TFLOP/s; backward %.3f ms, %.0f TFLOP/s\n",
      s.batch, s.seq, s.num_heads, s.num_kv_heads, s.head_dim, s.value_dim(),
      forward * 1e3, (product + of_values) / forward, backward * 1e3,
      (3 * product + 2 * of_values) / backward);
}

void Run() {
  auto device = device::CreateCudaDevice({});
  Require(device.status());
  auto stream = (*device)->CreateStream("compute");
  Require(stream.status());
  for (const int64_t batch : {2, 4}) {
    Time({batch, 4096, 16, 4, 128, 1 / std::sqrt(128.0f)}, **device, **stream);
  }
  Time({4, 2048, 16, 4, 64, 0.125f}, **device, **stream);
  Time({4, 4096, 16, 16, 192, 1 / std::sqrt(192.0f), 128}, **device, **stream);
}

}  // namespace
}  // namespace weft::ops

int main() { weft::ops::Run(); }
