// Rates of the ops that move memory rather than multiply, on a GPU, beside that
// of a copy: bytes that must be read or written once, by the time on the
// device. Sizes are those of a microbatch of 16,384 tokens, hidden size 2048,
// and of 32,768 rows of experts with a width of 1024.
//
//   memory_bound_ops_benchmark
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/bf16.h"
#include "base/clock.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/device/device.h"
#include "kernels/device/tensor.h"
#include "kernels/ops/bias/bias.h"
#include "kernels/ops/cross_entropy/cross_entropy.h"
#include "kernels/ops/elementwise/elementwise.h"
#include "kernels/ops/embedding/embedding.h"
#include "kernels/ops/head_norm/head_norm.h"
#include "kernels/ops/rms_norm/rms_norm.h"
#include "kernels/ops/rope/rope.h"
#include "kernels/ops/squared_relu/squared_relu.h"
#include "kernels/ops/swiglu/swiglu.h"

namespace weft {
namespace {

constexpr int64_t kTokens = 16384;
constexpr int64_t kHidden = 2048;
constexpr int64_t kHeads = 16;
constexpr int64_t kKvHeads = 4;
constexpr int64_t kHeadDim = 128;
constexpr int64_t kQkv = (kHeads + 2 * kKvHeads) * kHeadDim;
constexpr int64_t kVocab = 32000;
constexpr int64_t kLossTokens = 8192;
constexpr int64_t kRows = 32768;
constexpr int64_t kFfn = 1024;
constexpr int kRuns = 15;

template <typename T>
T Take(absl::StatusOr<T> result) {
  if (!result.ok()) {
    std::cerr << result.status() << std::endl;
    std::exit(1);
  }
  return *std::move(result);
}

// A device, a stream, and memory filled with normal values.
class Bench {
 public:
  Bench()
      : device_(Take(device::CreateCudaDevice({}))),
        stream_(Take(device_->CreateStream("compute"))),
        host_(Take(device_->AllocateHost(kSampleBytes))) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    std::vector<float> sample(1 << 16);
    for (float& value : sample) value = normal(generator);
    floats_ = reinterpret_cast<float*>(host_->data());
    for (int64_t i = 0; i < kSample; ++i) floats_[i] = sample[i * 7 % 65536];
  }

  device::Stream& stream() { return *stream_; }

  // `elements` normal values.
  template <typename T>
  T* Normal(int64_t elements) {
    T* data = Memory<T>(elements);
    for (int64_t begin = 0; begin < elements; begin += kSample) {
      Do([&](device::Stream& stream) {
        ops::Copy({std::min(kSample, elements - begin), floats_, data + begin},
                  stream);
      });
    }
    return data;
  }

  template <typename T>
  T* Memory(int64_t elements) {
    buffers_.push_back(
        Take(device_->Allocate(elements * static_cast<int64_t>(sizeof(T)),
                               device::MemoryCategory::kArena)));
    return reinterpret_cast<T*>(buffers_.back()->data());
  }

  int32_t* Ids(const std::vector<int32_t>& ids) {
    int32_t* data = Memory<int32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), reinterpret_cast<int32_t*>(floats_));
    Do([&](device::Stream& stream) {
      ops::Copy({static_cast<int64_t>(ids.size()), floats_,
                 reinterpret_cast<float*>(data)},
                stream);
    });
    return data;
  }

  void FreeMemory() { buffers_.clear(); }

  // Prints the median time of `op`, and the rate at which it moves `bytes`.
  void Report(const char* name, double bytes,
              const std::function<void(device::Stream&)>& op) {
    std::vector<int64_t> begin(kRuns);
    std::vector<int64_t> end(kRuns);
    Do(op);
    Do([&](device::Stream& stream) {
      for (int run = 0; run < kRuns; ++run) {
        stream.Timestamp(clock_, &begin[run]);
        op(stream);
        stream.Timestamp(clock_, &end[run]);
      }
    });
    std::vector<double> us;
    for (int run = 0; run < kRuns; ++run) {
      us.push_back((end[run] - begin[run]) / 1e3);
    }
    std::nth_element(us.begin(), us.begin() + kRuns / 2, us.end());
    std::printf("%-32s %8.1f us %7.0f GB/s\n", name, us[kRuns / 2],
                bytes / us[kRuns / 2] / 1e3);
  }

  // Runs `op` and waits.
  void Do(const std::function<void(device::Stream&)>& op) {
    auto copy = op;
    stream_->Launch(
        [](void* arg, device::Stream& stream) {
          (*static_cast<std::function<void(device::Stream&)>*>(arg))(stream);
          return absl::OkStatus();
        },
        &copy);
    const absl::Status status = stream_->Synchronize();
    if (!status.ok()) {
      std::cerr << status << std::endl;
      std::exit(1);
    }
  }

 private:
  static constexpr int64_t kSample = 4 << 20;
  static constexpr int64_t kSampleBytes = kSample * sizeof(float);

  Clock& clock_ = RealClock();
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Buffer> host_;
  float* floats_ = nullptr;  // in `host_`
  std::vector<std::unique_ptr<device::Buffer>> buffers_;
};

using device::Stream;

void Elementwise(Bench& bench) {
  constexpr int64_t kCount = 8 * kTokens * kHidden;
  Bf16* a = bench.Normal<Bf16>(kCount);
  Bf16* b = bench.Normal<Bf16>(kCount);
  float* c = bench.Normal<float>(kCount);
  bench.Report("copy of 512 MiB", 4.0 * kCount, [&](Stream& s) {
    ops::Copy({kCount, a, b}, s);
  });
  bench.Report("fp32 to bf16", 6.0 * kCount, [&](Stream& s) {
    ops::Copy({kCount, c, a}, s);
  });
  bench.Report("bf16 to fp32", 6.0 * kCount, [&](Stream& s) {
    ops::Copy({kCount, a, c}, s);
  });
  bench.Report("add, bf16", 6.0 * kCount, [&](Stream& s) {
    ops::Add({kCount, a, b, a}, s);
  });
  bench.Report("scale in place, bf16", 4.0 * kCount, [&](Stream& s) {
    ops::Scale({kCount, 0.5f, b, b}, s);
  });
  bench.Report("fill, fp32", 4.0 * kCount, [&](Stream& s) {
    ops::Fill({kCount, 0.5f, c}, s);
  });
}

template <typename T>
void Norms(Bench& bench, const std::string& format) {
  const double bytes = kTokens * kHidden * sizeof(T);
  T* x = bench.Normal<T>(kTokens * kHidden);
  T* y = bench.Normal<T>(kTokens * kHidden);
  T* dy = bench.Normal<T>(kTokens * kHidden);
  T* add = bench.Normal<T>(kTokens * kHidden);
  T* weight = bench.Normal<T>(kHidden);
  float* rstd = bench.Memory<float>(kTokens);
  bench.Report(
      ("rms_norm forward, " + format).c_str(), 2 * bytes, [&](Stream& s) {
        ops::RmsNormForward({kTokens, kHidden, 1e-5f, x, weight, y, rstd}, s);
      });
  bench.Report(
      ("rms_norm dgrad, add, " + format).c_str(), 4 * bytes, [&](Stream& s) {
        ops::RmsNormDgrad({kTokens, kHidden, x, weight, rstd, dy, add, y}, s);
      });
  bench.Report(("rms_norm wgrad, " + format).c_str(), 2 * bytes,
               [&](Stream& s) {
                 ops::RmsNormWgrad({kTokens, kHidden, x, rstd, dy, weight}, s);
               });
  bench.Report(("bias forward, " + format).c_str(), 2 * bytes, [&](Stream& s) {
    ops::BiasForward({kTokens, kHidden, weight, y}, s);
  });
  bench.Report(("bias wgrad, " + format).c_str(), bytes, [&](Stream& s) {
    ops::BiasWgrad({kTokens, kHidden, dy, weight}, s);
  });
}

void Attention(Bench& bench) {
  constexpr int64_t kRotated = (kHeads + kKvHeads) * kHeadDim;
  Bf16* qkv = bench.Normal<Bf16>(kTokens * kQkv);
  Bf16* kept = bench.Normal<Bf16>(kTokens * kRotated);
  Bf16* weight = bench.Normal<Bf16>(kHeadDim);
  float* rstd = bench.Memory<float>(kTokens * (kHeads + kKvHeads));
  float* cos = bench.Normal<float>(4096 * kHeadDim / 2);
  float* sin = bench.Normal<float>(4096 * kHeadDim / 2);
  bench.Report("rope, bf16", 4.0 * kTokens * kRotated, [&](Stream& s) {
    ops::RopeForward(
        {kTokens, 4096, kHeads, kKvHeads, kHeadDim, kHeadDim, cos, sin, qkv},
        s);
  });
  const ops::HeadNormShape queries = {kTokens, kHeads,   kHeadDim,
                                      kQkv,    kRotated, kHeads + kKvHeads};
  const double bytes = 2.0 * kTokens * kHeads * kHeadDim;
  bench.Report("head_norm forward, bf16", 3 * bytes, [&](Stream& s) {
    ops::HeadNormForward({queries, 1e-5f, weight, qkv, kept, rstd}, s);
  });
  bench.Report("head_norm backward, bf16", 3 * bytes, [&](Stream& s) {
    ops::HeadNormBackward({queries, weight, kept, rstd, qkv, weight}, s);
  });
}

void Activations(Bench& bench) {
  const double bytes = 2.0 * kRows * kFfn;
  Bf16* gate_up = bench.Normal<Bf16>(kRows * 2 * kFfn);
  Bf16* d_gate_up = bench.Normal<Bf16>(kRows * 2 * kFfn);
  Bf16* out = bench.Normal<Bf16>(kRows * kFfn);
  float* prob = bench.Normal<float>(kRows);
  float* d_prob = bench.Memory<float>(kRows);
  bench.Report("swiglu forward, bf16", 3 * bytes, [&](Stream& s) {
    ops::SwigluForward({kRows, kFfn, gate_up, prob, out}, s);
  });
  bench.Report("swiglu backward, bf16", 5 * bytes, [&](Stream& s) {
    ops::SwigluBackward({kRows, kFfn, gate_up, prob, out, d_gate_up, d_prob},
                        s);
  });
  bench.Report("squared_relu forward, bf16", 4 * bytes, [&](Stream& s) {
    ops::SquaredReluForward({kRows, 2 * kFfn, gate_up, prob, d_gate_up}, s);
  });
  bench.Report("squared_relu backward, bf16", 6 * bytes, [&](Stream& s) {
    ops::SquaredReluBackward(
        {kRows, 2 * kFfn, gate_up, prob, d_gate_up, gate_up, d_prob}, s);
  });
}

// Ids of which low ones are frequent: the first gets one in 15.
std::vector<int32_t> TextLikeIds() {
  std::mt19937 generator(1);
  std::uniform_real_distribution<double> uniform;
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < kTokens; ++t) {
    ids.push_back(static_cast<int32_t>(std::pow(kVocab, uniform(generator))) -
                  1);
  }
  return ids;
}

void Embedding(Bench& bench) {
  const int32_t* ids = bench.Ids(TextLikeIds());
  Bf16* table = bench.Normal<Bf16>(kVocab * kHidden);
  float* d_table = bench.Normal<float>(kVocab * kHidden);
  Bf16* out = bench.Normal<Bf16>(kTokens * kHidden);
  int32_t* scratch = bench.Memory<int32_t>(
      ops::EmbeddingBackwardScratchElements(kTokens, kVocab));
  const double rows = 2.0 * kTokens * kHidden;
  const double elements = 1.0 * kVocab * kHidden;
  bench.Report("embedding forward, bf16", 2 * rows, [&](Stream& s) {
    ops::EmbeddingForward({kTokens, kVocab, kHidden, ids, table, out}, s);
  });
  bench.Report(
      "embedding backward to fp32", rows + 4 * elements, [&](Stream& s) {
        ops::EmbeddingBackward(
            {kTokens, kVocab, kHidden, ids, out, d_table, false, scratch}, s);
      });
  bench.Report(
      "embedding backward to bf16", rows + 2 * elements, [&](Stream& s) {
        ops::EmbeddingBackward(
            {kTokens, kVocab, kHidden, ids, out, table, false, scratch}, s);
      });
  bench.Report("embedding backward, added", rows, [&](Stream& s) {
    ops::EmbeddingBackward(
        {kTokens, kVocab, kHidden, ids, out, d_table, true, scratch}, s);
  });
}

template <typename T>
void Loss(Bench& bench, const std::string& format) {
  std::vector<int32_t> labels(kLossTokens);
  for (int64_t t = 0; t < kLossTokens; ++t) labels[t] = t * 7919 % kVocab;
  const int32_t* device_labels = bench.Ids(labels);
  T* logits = bench.Normal<T>(kLossTokens * kVocab);
  float* lse = bench.Memory<float>(kLossTokens);
  double* loss = bench.Memory<double>(1);
  const double bytes = 1.0 * kLossTokens * kVocab * sizeof(T);
  bench.Report(
      ("cross_entropy forward, " + format).c_str(), bytes, [&](Stream& s) {
        ops::CrossEntropyForward(
            {kLossTokens, kVocab, logits, device_labels, lse, loss, nullptr},
            s);
      });
  bench.Report(
      ("cross_entropy backward, " + format).c_str(), 2 * bytes, [&](Stream& s) {
        ops::CrossEntropyBackward(
            {kLossTokens, kVocab, logits, device_labels, lse, 1.0f, logits}, s);
      });
}

void RunAll() {
  Bench bench;
  const std::vector<std::function<void()>> parts = {
      [&] { Elementwise(bench); },          [&] { Norms<Bf16>(bench, "bf16"); },
      [&] { Norms<float>(bench, "fp32"); }, [&] { Attention(bench); },
      [&] { Activations(bench); },          [&] { Embedding(bench); },
      [&] { Loss<Bf16>(bench, "bf16"); },   [&] { Loss<float>(bench, "fp32"); },
  };
  for (const auto& part : parts) {
    part();
    bench.FreeMemory();
  }
}

}  // namespace
}  // namespace weft

int main() { weft::RunAll(); }
