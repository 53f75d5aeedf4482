// Rates of products on a GPU: cuBLASLt, the kernels of our own, and grouped
// products beside the same products by cuBLASLt, one expert after the other.
// Prints a table; normal numbers, medians of ten calls.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/device/cuda/launch.h"
#include "kernels/ops/gemm/gemm.h"
#include "kernels/ops/gemm/product_cuda.h"
#include "kernels/ops/grouped_gemm/grouped_gemm.h"

namespace weft::ops {
namespace {

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  std::exit(1);
}

void Expect(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

class Gpu {
 public:
  Gpu()
      : device_(OrDie(device::CreateCudaDevice({}))),
        stream_(OrDie(device_->CreateStream("compute"))) {
    Expect(cudaEventCreate(&begin_));
    Expect(cudaEventCreate(&end_));
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    noise_.resize(int64_t{1} << 22);
    for (float& value : noise_) value = normal(generator);
  }

  device::Stream& stream() { return *stream_; }

  // `count` normal numbers.
  Tensor Make(int64_t count, DType dtype) {
    buffers_.push_back(OrDie(device_->Allocate(
        count * SizeOf(dtype), device::MemoryCategory::kArena)));
    const Tensor tensor(buffers_.back()->data(), dtype);
    std::vector<Bf16> narrow;
    for (const float value : noise_) narrow.push_back(ToBf16(value));
    const void* const from = dtype == DType::kBf16
                                 ? static_cast<const void*>(narrow.data())
                                 : noise_.data();
    const auto block = static_cast<int64_t>(noise_.size());
    for (int64_t i = 0; i < count; i += block) {
      Expect(cudaMemcpy((tensor + i).data, from,
                        std::min(block, count - i) * SizeOf(dtype),
                        cudaMemcpyDefault));
    }
    return tensor;
  }

  // Prints what `run`, of `flops`, takes on the device, and on the host until
  // it has been enqueued.
  void Time(const std::string& name, double flops,
            const std::function<void()>& run) {
    run();
    std::vector<double> times;
    double host = 0;
    for (int i = 0; i < 10; ++i) {
      Expect(cudaDeviceSynchronize());
      Expect(cudaEventRecord(begin_, device::cuda::Handle(*stream_)));
      const auto from = std::chrono::steady_clock::now();
      run();
      host += std::chrono::duration<double, std::micro>(
                  std::chrono::steady_clock::now() - from)
                  .count();
      Expect(cudaEventRecord(end_, device::cuda::Handle(*stream_)));
      Expect(cudaDeviceSynchronize());
      float ms = 0;
      Expect(cudaEventElapsedTime(&ms, begin_, end_));
      times.push_back(ms * 1e3);
    }
    std::sort(times.begin(), times.end());
    std::printf("%-46s %9.1f us %7.1f TFLOP/s, host %5.1f us\n", name.c_str(),
                times[5], flops / times[5] * 1e-6, host / 10);
    std::fflush(stdout);
  }

 private:
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  std::vector<std::unique_ptr<device::Buffer>> buffers_;
  std::vector<float> noise_;
  cudaEvent_t begin_;
  cudaEvent_t end_;
};

// The largest |a - b| of fp32 or bf16 numbers.
double Distance(const Tensor& a, const Tensor& b, int64_t count) {
  std::vector<std::byte> host_a(count * SizeOf(a.dtype));
  std::vector<std::byte> host_b(host_a.size());
  Expect(cudaMemcpy(host_a.data(), a.data, host_a.size(), cudaMemcpyDefault));
  Expect(cudaMemcpy(host_b.data(), b.data, host_b.size(), cudaMemcpyDefault));
  double distance = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto value = [&](const std::vector<std::byte>& from) {
      return a.dtype == DType::kF32
                 ? reinterpret_cast<const float*>(from.data())[i]
                 : ToFloat(reinterpret_cast<const Bf16*>(from.data())[i]);
    };
    const double difference = std::abs(value(host_a) - value(host_b));
    if (std::isnan(difference)) return difference;
    distance = std::max(distance, difference);
  }
  return distance;
}

struct Operands {
  Tensor x;
  Tensor w;
  Tensor y;
  Tensor dw;
};

// The three products of a linear layer, by the library and by our kernel.
void TimeLinear(Gpu& gpu, const Operands& t, int64_t rows, int64_t in,
                int64_t out) {
  const double flops = 2.0 * rows * in * out;
  const std::string size = std::to_string(rows) + "x" + std::to_string(out) +
                           "x" + std::to_string(in);
  GemmArgs forward;
  forward.transpose_b = true;
  forward.m = rows;
  forward.n = out;
  forward.k = in;
  forward.a = t.x;
  forward.b = t.w;
  forward.c = t.y;
  GemmArgs dgrad = forward;
  dgrad.transpose_b = false;
  GemmArgs wgrad;
  wgrad.transpose_a = true;
  wgrad.m = out;
  wgrad.n = in;
  wgrad.k = rows;
  wgrad.accumulate = true;
  wgrad.a = t.y;
  wgrad.b = t.x;
  wgrad.c = t.dw;
  const std::pair<const char*, GemmArgs> products[] = {
      {"forward", forward}, {"dgrad", dgrad}, {"wgrad f32 +=", wgrad}};
  for (const auto& [name, g] : products) {
    gpu.Time(size + " " + name + ", library", flops,
             [&, g = g] { Gemm(g, gpu.stream()); });
    internal::Product product;
    product.gemm = internal::WithLeadingDimensions(g);
    gpu.Time(size + " " + name + ", own", flops,
             [&] { internal::WgmmaProduct(product, gpu.stream()); });
  }
  dgrad.accumulate = true;
  gpu.Time(size + " dgrad bf16 +=, library", flops,
           [&] { Gemm(dgrad, gpu.stream()); });
  internal::Product sum;
  sum.gemm = internal::WithLeadingDimensions(dgrad);
  gpu.Time(size + " dgrad bf16 +=, own", flops,
           [&] { internal::WgmmaProduct(sum, gpu.stream()); });
}

// A router of 32 experts: logits and their gradient are fp32.
void TimeRouter(Gpu& gpu, const Operands& t) {
  constexpr int64_t kRows = 8192, kIn = 2048, kExperts = 32;
  const double flops = 2.0 * kRows * kIn * kExperts;
  const Tensor logits = t.dw;
  gpu.Time("router forward", flops, [&] {
    LinearForward({kRows, kIn, kExperts, t.x, t.w, logits}, gpu.stream());
  });
  gpu.Time("router dgrad bf16 +=", flops, [&] {
    LinearDgrad({kRows, kIn, kExperts, logits, t.w, t.x, true}, gpu.stream());
  });
  gpu.Time("router wgrad", flops, [&] {
    LinearWgrad({kRows, kIn, kExperts, logits, t.x, t.dw + kRows * kExperts},
                gpu.stream());
  });
}

// Rows of each group: all alike, or drawn from an exponential distribution.
std::vector<int64_t> Offsets(int64_t rows, int64_t groups, bool ragged) {
  std::mt19937 generator(2);
  std::exponential_distribution<double> draw;
  std::vector<double> ends = {0};
  for (int64_t g = 0; g < groups; ++g) {
    ends.push_back(ends.back() + (ragged ? 0.3 + draw(generator) : 1));
  }
  std::vector<int64_t> offsets;
  for (const double end : ends) {
    offsets.push_back(std::llround(end / ends.back() * rows));
  }
  return offsets;
}

// Calls f(rows, first row, first element of the weight) for each group.
template <typename F>
void ForEachGroup(const GroupedShape& s, const std::vector<int64_t>& offsets,
                  F&& f) {
  for (int64_t g = 0; g < s.num_experts; ++g) {
    f(offsets[g + 1] - offsets[g], offsets[g], g * s.in * s.out);
  }
}

void TimeGrouped(Gpu& gpu, const Operands& t, GroupedShape s, bool ragged) {
  const std::vector<int64_t> offsets =
      Offsets(s.max_rows, s.num_experts, ragged);
  const int64_t weights = s.num_experts * s.in * s.out;
  const double flops = 2.0 * s.max_rows * s.in * s.out;
  void* device_offsets = nullptr;
  Expect(cudaMalloc(&device_offsets, offsets.size() * sizeof(int64_t)));
  Expect(cudaMemcpy(device_offsets, offsets.data(),
                    offsets.size() * sizeof(int64_t), cudaMemcpyDefault));
  s.offsets = static_cast<const int64_t*>(device_offsets);
  const std::string name = std::to_string(s.num_experts) +
                           (ragged ? " ragged " : " even ") +
                           std::to_string(s.out) + "x" + std::to_string(s.in);
  const Tensor other =
      gpu.Make(std::max(s.max_rows * s.out, weights), DType::kBf16);
  const Tensor other_dw = gpu.Make(weights, DType::kF32);

  gpu.Time(name + " forward", flops, [&] {
    GroupedForward({s, t.x, t.w, t.y}, gpu.stream());
  });
  gpu.Time(name + " forward, library", flops, [&] {
    ForEachGroup(s, offsets, [&](int64_t rows, int64_t row, int64_t weight) {
      LinearForward({rows, s.in, s.out, t.x + row * s.in, t.w + weight,
                     other + row * s.out},
                    gpu.stream());
    });
  });
  std::printf("  distance %g\n", Distance(t.y, other, s.max_rows * s.out));

  const Tensor dx = gpu.Make(s.max_rows * s.in, DType::kBf16);
  gpu.Time(name + " dgrad", flops, [&] {
    GroupedDgrad({s, t.y, t.w, dx}, gpu.stream());
  });
  gpu.Time(name + " dgrad, library", flops, [&] {
    ForEachGroup(s, offsets, [&](int64_t rows, int64_t row, int64_t weight) {
      LinearDgrad({rows, s.in, s.out, t.y + row * s.out, t.w + weight,
                   other + row * s.in},
                  gpu.stream());
    });
  });
  std::printf("  distance %g\n", Distance(dx, other, s.max_rows * s.in));

  gpu.Time(name + " wgrad f32", flops, [&] {
    GroupedWgrad({s, t.y, t.x, t.dw}, gpu.stream());
  });
  gpu.Time(name + " wgrad f32, library", flops, [&] {
    ForEachGroup(s, offsets, [&](int64_t rows, int64_t row, int64_t weight) {
      LinearWgrad({rows, s.in, s.out, t.y + row * s.out, t.x + row * s.in,
                   other_dw + weight},
                  gpu.stream());
    });
  });
  std::printf("  distance %g\n", Distance(t.dw, other_dw, weights));
  gpu.Time(name + " wgrad f32 +=", flops, [&] {
    GroupedWgrad({s, t.y, t.x, t.dw, true}, gpu.stream());
  });
  gpu.Time(name + " wgrad bf16", flops, [&] {
    GroupedWgrad({s, t.y, t.x, other}, gpu.stream());
  });
  Expect(cudaFree(device_offsets));
}

void Main() {
  Gpu gpu;
  constexpr int64_t kRows = 32768;
  Operands t;
  t.x = gpu.Make(kRows * 2048, DType::kBf16);
  t.w = gpu.Make(int64_t{32} * 2048 * 2048, DType::kBf16);
  t.y = gpu.Make(int64_t{8192} * 32000, DType::kBf16);
  t.dw = gpu.Make(int64_t{32} * 2048 * 2048, DType::kF32);
  TimeLinear(gpu, t, 8192, 2048, 2048);
  TimeLinear(gpu, t, 8192, 1024, 2048);
  TimeLinear(gpu, t, 8192, 2048, 32000);
  TimeRouter(gpu, t);
  GroupedShape s;
  s.max_rows = kRows;
  s.in = 2048;
  s.out = 2048;
  s.num_experts = 16;
  TimeGrouped(gpu, t, s, false);
  TimeGrouped(gpu, t, s, true);
  s.num_experts = 32;
  TimeGrouped(gpu, t, s, true);
  s.num_experts = 16;
  s.in = 1024;
  TimeGrouped(gpu, t, s, true);
}

}  // namespace
}  // namespace weft::ops

int main() { weft::ops::Main(); }
