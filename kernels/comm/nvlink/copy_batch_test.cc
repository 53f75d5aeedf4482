#include "kernels/comm/nvlink/copy_batch.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "base/status_matchers.h"
#include "gtest/gtest.h"

namespace weft::comm::nvlink {
namespace {

constexpr int64_t kBytes = 1 << 20;

class CopyBatchTest : public testing::Test {
 protected:
  void SetUp() override {
    std::mt19937_64 random(3);
    from_.resize(kBytes);
    for (auto& byte : from_) byte = static_cast<unsigned char>(random());
    for (std::byte** data : {&device_from_, &device_to_}) {
      ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(data), kBytes),
                cudaSuccess);
    }
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
              cudaSuccess);
    ASSERT_EQ(
        cudaMemcpy(device_from_, from_.data(), kBytes, cudaMemcpyHostToDevice),
        cudaSuccess);
    ASSERT_EQ(cudaMemset(device_to_, 0xEE, kBytes), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  void TearDown() override {
    (void)cudaStreamDestroy(stream_);
    (void)cudaFree(device_from_);
    (void)cudaFree(device_to_);
  }

  std::vector<unsigned char> from_;
  std::byte* device_from_ = nullptr;
  std::byte* device_to_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

TEST_F(CopyBatchTest, CopiesEachRunOfBytesAndNothingElse) {
  std::vector<unsigned char> expected(kBytes, 0xEE);
  CopyBatch batch;
  for (int turn = 0; turn < 2; ++turn) {
    batch.Clear();
    for (int64_t i = 0; i < 100; ++i) {
      const int64_t to = (2 * i + turn) * 5000;
      const int64_t from = (97 * i + 11 * turn) * 1000 % (kBytes - 5000);
      const int64_t bytes = 1 + i * 49;
      batch.Add(device_to_ + to, device_from_ + from, bytes);
      std::copy(from_.begin() + from, from_.begin() + from + bytes,
                expected.begin() + to);
    }
    EXPECT_EQ(batch.size(), 100);
    ASSERT_OK(batch.Enqueue(stream_));
  }
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  std::vector<unsigned char> got(kBytes);
  ASSERT_EQ(cudaMemcpy(got.data(), device_to_, kBytes, cudaMemcpyDeviceToHost),
            cudaSuccess);
  for (int64_t i = 0; i < kBytes; ++i) ASSERT_EQ(got[i], expected[i]) << i;
}

TEST_F(CopyBatchTest, RunsThatAdjoinOnBothSidesAreOne) {
  CopyBatch batch;
  batch.Add(device_to_, device_from_ + 100, 10);
  batch.Add(device_to_ + 10, device_from_ + 110, 5);
  EXPECT_EQ(batch.size(), 1);
  batch.Add(device_to_ + 15, device_from_ + 116, 5);
  batch.Add(device_to_ + 21, device_from_ + 121, 5);
  EXPECT_EQ(batch.size(), 3);
  batch.Clear();
  EXPECT_OK(batch.Enqueue(stream_)) << "no copies at all";
}

}  // namespace
}  // namespace weft::comm::nvlink
