// Attention at lengths that only a GPU computes in a test: bf16 on tensor cores
// against fp32.
#include <cuda_runtime_api.h>

#include <cmath>
#include <string>

#include "gtest/gtest.h"
#include "kernels/ops/attention/attention.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::CloseInNorm;
using testing::Floats;
using testing::Halves;
using testing::InlineStream;
using testing::SameBits;
using testing::ToDoubles;
using testing::Vector;
using testing::Widened;

struct Case {
  std::string name;
  int64_t batch;
  int64_t seq;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t v_head_dim = 0;

  AttentionShape Shape() const {
    return {batch,     seq,      heads,
            kv_heads,  head_dim, 1 / std::sqrt(static_cast<float>(head_dim)),
            v_head_dim};
  }
};

// Memory of the device: pinned memory would be read again and again.
template <typename T>
class OnDevice {
 public:
  // Of NaN.
  explicit OnDevice(int64_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(&data_, count * sizeof(T)), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, 0xFF, count * sizeof(T)), cudaSuccess);
  }
  explicit OnDevice(const Vector<T>& values)
      : OnDevice(static_cast<int64_t>(values.size())) {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), count_ * sizeof(T),
                         cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { (void)cudaFree(data_); }

  T* data() const { return static_cast<T*>(data_); }

  Vector<T> Values() const {
    Vector<T> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count_ * sizeof(T),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }

 private:
  void* data_ = nullptr;
  const int64_t count_;
};

template <typename T>
struct Results {
  Vector<T> out;
  Floats lse;
  Vector<T> d_qkv;
};

template <typename T>
Results<T> ForwardAndBackward(const AttentionShape& s, const Vector<T>& qkv,
                              const Vector<T>& d_out) {
  const OnDevice<T> x(qkv);
  const OnDevice<T> dy(d_out);
  const OnDevice<T> y(s.tokens() * s.out_width());
  const OnDevice<float> lse(s.tokens() * s.num_heads);
  const OnDevice<T> dx(s.tokens() * s.qkv_width());
  AttentionForward({s, x.data(), y.data(), lse.data(), nullptr},
                   InlineStream());
  AttentionBackward(
      {s, x.data(), y.data(), lse.data(), dy.data(), dx.data(), nullptr},
      InlineStream());
  return {y.Values(), lse.Values(), dx.Values()};
}

class LongAttention : public ::testing::TestWithParam<Case> {
 protected:
  const AttentionShape s_ = GetParam().Shape();
  const Halves qkv_ = testing::RandomHalves(s_.tokens() * s_.qkv_width(), 1);
  const Halves d_out_ = testing::RandomHalves(s_.tokens() * s_.out_width(), 2);
};

TEST_P(LongAttention, Bf16IsCloseToFp32) {
  const Results<Bf16> actual = ForwardAndBackward(s_, qkv_, d_out_);
  const Results<float> expected =
      ForwardAndBackward(s_, Widened(qkv_), Widened(d_out_));
  EXPECT_TRUE(CloseInNorm(Widened(actual.out), ToDoubles(expected.out), 4e-3));
  EXPECT_TRUE(testing::Close(actual.lse, ToDoubles(expected.lse), 1e-4, 1e-5));
  EXPECT_TRUE(
      CloseInNorm(Widened(actual.d_qkv), ToDoubles(expected.d_qkv), 6e-3));
}

TEST_P(LongAttention, RepeatsToTheBit) {
  const Results<Bf16> first = ForwardAndBackward(s_, qkv_, d_out_);
  for (int run = 0; run < 3; ++run) {
    const Results<Bf16> again = ForwardAndBackward(s_, qkv_, d_out_);
    EXPECT_TRUE(SameBits(again.out, first.out));
    EXPECT_TRUE(SameBits(again.lse, first.lse));
    EXPECT_TRUE(SameBits(again.d_qkv, first.d_qkv));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LongAttention,
    ::testing::Values(Case{"Grouped", 1, 4096, 4, 1, 128},
                      Case{"Heads64", 2, 2048, 4, 2, 64},
                      Case{"Latent", 1, 4096, 4, 4, 192, 128},
                      Case{"NoWholeTilesOfLatent", 2, 777, 3, 3, 192, 128},
                      Case{"NoWholeTiles", 3, 1000, 2, 2, 128},
                      Case{"NoWholeTilesOfHeads64", 2, 777, 6, 2, 64}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::ops
