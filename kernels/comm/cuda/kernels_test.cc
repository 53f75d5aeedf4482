#include "kernels/comm/cuda/kernels.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/bf16.h"
#include "gtest/gtest.h"

namespace weft::comm::cuda {
namespace {

// Device memory that is a copy of `values`.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : count_(values.size()) {
    EXPECT_EQ(cudaMalloc(&data_, count_ * sizeof(T) + 16), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), count_ * sizeof(T),
                         cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  ~OnDevice() { (void)cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* data() { return static_cast<T*>(data_); }
  std::vector<T> values() const {
    std::vector<T> values(count_);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count_ * sizeof(T),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    return values;
  }

 private:
  const size_t count_;
  void* data_ = nullptr;
};

float Number(std::mt19937_64* random) {
  return static_cast<float>(static_cast<int64_t>((*random)() % 20001) - 10000) /
         7.0f;
}

template <typename T>
T Make(float x) {
  return static_cast<T>(x);
}
template <>
Bf16 Make<Bf16>(float x) {
  return ToBf16(x);
}

float Wide(Bf16 x) { return ToFloat(x); }
float Wide(float x) { return x; }
double Wide(double x) { return x; }
Bf16 Round(float x, Bf16) { return ToBf16(x); }
float Round(float x, float) { return x; }
double Round(double x, double) { return x; }

// `shift` elements before everything spoil its alignment.
template <typename T, typename Sum>
void CheckSum(SumType type, int size, int rank, int64_t elements,
              int64_t shift) {
  std::mt19937_64 random(elements * 31 + size);
  std::vector<std::vector<T>> by_rank(size);
  for (auto& slice : by_rank) {
    for (int64_t i = 0; i < elements; ++i) {
      slice.push_back(Make<T>(Number(&random)));
    }
  }
  std::vector<T> others(shift), own(shift);
  for (int r = 0; r < size; ++r) {
    std::vector<T>& to = r == rank ? own : others;
    to.insert(to.end(), by_rank[r].begin(), by_rank[r].end());
  }
  others.push_back(T{});  // never an empty allocation
  own.push_back(Make<T>(-1));
  OnDevice<T> device_others(others), device_own(own);
  RankSlices slices;
  slices.others = device_others.data() + shift;
  slices.own = device_own.data() + shift;
  slices.rank = rank;
  slices.size = size;
  slices.elements = elements;
  // In place, as the last rank's; beyond it nothing may change.
  ASSERT_EQ(SumInRankOrder(slices, type, device_own.data() + shift, nullptr),
            cudaSuccess);
  std::vector<T> expected = own;
  for (int64_t i = 0; i < elements; ++i) {
    Sum sum = Wide(by_rank[0][i]);
    for (int r = 1; r < size; ++r) sum += Wide(by_rank[r][i]);
    expected[shift + i] = Round(sum, T{});
  }
  const std::vector<T> got = device_own.values();
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(std::memcmp(&got[i], &expected[i], sizeof(T)), 0)
        << "element " << i << " of " << elements << ", ranks " << size
        << ", rank " << rank << ", shift " << shift << ": " << Wide(got[i])
        << " for " << Wide(expected[i]);
  }
}

TEST(SumInRankOrderTest, SumsAscendingInPlaceToTheBitWhateverTheAlignment) {
  for (int64_t elements : {0, 1, 7, 8, 1000, 4096, 1000003}) {
    for (int size : {2, 3, 8}) {
      for (int64_t shift : {0, 1}) {
        const int rank = static_cast<int>(elements % size);
        CheckSum<float, float>(SumType::kF32, size, rank, elements, shift);
        CheckSum<double, double>(SumType::kF64, size, rank, elements, shift);
        CheckSum<Bf16, float>(SumType::kBf16, size, rank, elements, shift);
      }
    }
  }
}

TEST(CopyPiecesTest, CopiesEachPieceAndNothingElse) {
  std::mt19937_64 random(7);
  std::vector<unsigned char> from(3 << 20);
  for (auto& byte : from) byte = static_cast<unsigned char>(random());
  std::vector<unsigned char> to(3 << 20, 0xEE);
  std::vector<unsigned char> expected = to;
  std::vector<CopyPiece> pieces;
  int64_t at = 0;
  for (int i = 0; i < 300; ++i) {
    CopyPiece piece;
    // Some are aligned, some are empty, some are long.
    const int64_t unit = i % 3 == 0 ? 16 : i % 3 == 1 ? 4 : 1;
    piece.bytes =
        unit * static_cast<int64_t>(random() % (i == 5 ? 60000 : 300));
    at = (at + unit - 1) / unit * unit;
    piece.to = at;
    piece.from = unit * static_cast<int64_t>(random() % 1000);
    at += piece.bytes + i % 5;
    std::memcpy(expected.data() + piece.to, from.data() + piece.from,
                piece.bytes);
    pieces.push_back(piece);
  }
  ASSERT_LT(at, static_cast<int64_t>(to.size()));
  OnDevice<unsigned char> device_from(from), device_to(to);
  ASSERT_EQ(CopyPieces(device_from.data(), device_to.data(), pieces.data(),
                       pieces.size(), nullptr),
            cudaSuccess);
  const std::vector<unsigned char> got = device_to.values();
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], expected[i]) << "byte " << i;
  }
  EXPECT_EQ(CopyPieces(nullptr, nullptr, nullptr, 0, nullptr), cudaSuccess);
}

}  // namespace
}  // namespace weft::comm::cuda
