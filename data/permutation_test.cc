#include "data/permutation.h"

#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::data {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> Order(const Permutation& permutation) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < permutation.size(); ++i) {
    order.push_back(permutation(i));
  }
  return order;
}

TEST(PermutationTest, IsABijectionForEverySize) {
  std::mt19937_64 random(7);
  std::vector<int64_t> sizes = {1000, 4095, 4096, 4097, 65537};
  for (int64_t size = 1; size <= 300; ++size) sizes.push_back(size);
  for (int64_t size : sizes) {
    const uint64_t seed = random();
    const std::vector<int64_t> order = Order(Permutation(seed, 3, size));
    const std::set<int64_t> values(order.begin(), order.end());
    EXPECT_EQ(values.size(), size) << "seed " << seed;
    EXPECT_EQ(*values.begin(), 0) << "seed " << seed;
    EXPECT_EQ(*values.rbegin(), size - 1) << "seed " << seed;
  }
}

TEST(PermutationTest, HugeSizesStayInRangeAndDoNotCollide) {
  for (int64_t size :
       {int64_t{1} << 40, (int64_t{1} << 40) + 1, int64_t{1} << 61}) {
    const Permutation permutation(1, 2, size);
    std::set<int64_t> values;
    for (int64_t i = 0; i < 1000; ++i) {
      const int64_t value = permutation(size - 1 - i);
      EXPECT_GE(value, 0);
      EXPECT_LT(value, size);
      values.insert(value);
    }
    EXPECT_EQ(values.size(), 1000);
  }
}

// A change of these numbers would change what a resumed job reads.
TEST(PermutationTest, TheOrderNeverChanges) {
  EXPECT_THAT(Order(Permutation(0, 0, 8)), ElementsAre(7, 4, 3, 1, 2, 0, 6, 5));
}

TEST(PermutationTest, SeedAndStreamEachChangeTheOrder) {
  const auto order = Order(Permutation(1, 2, 100));
  EXPECT_EQ(order, Order(Permutation(1, 2, 100)));
  EXPECT_NE(order, Order(Permutation(2, 2, 100)));
  EXPECT_NE(order, Order(Permutation(1, 3, 100)));
  EXPECT_NE(order, Order(Permutation(2, 1, 100)));
}

// Every index goes to every place about equally often: with 16 places and
// 16000 draws, chi-square with 15 degrees of freedom is below 60 but for a
// chance of 1e-6 an index.
TEST(PermutationTest, PlacesAreEvenOverSeeds) {
  constexpr int kSize = 16;
  constexpr int kDraws = 16000;
  std::vector<std::vector<int>> counts(kSize, std::vector<int>(kSize));
  for (int seed = 0; seed < kDraws; ++seed) {
    const Permutation permutation(seed, 0, kSize);
    for (int i = 0; i < kSize; ++i) ++counts[i][permutation(i)];
  }
  for (int i = 0; i < kSize; ++i) {
    double chi_square = 0;
    for (int count : counts[i]) {
      const double excess = count - kDraws / kSize;
      chi_square += excess * excess / (kDraws / kSize);
    }
    EXPECT_LT(chi_square, 60) << "index " << i;
  }
}

TEST(PermutationTest, NeighboursDoNotStayNeighbours) {
  const Permutation permutation(5, 0, 100000);
  int close = 0;
  for (int64_t i = 1; i < permutation.size(); ++i) {
    const int64_t distance = permutation(i) - permutation(i - 1);
    close += distance >= -10 && distance <= 10;
  }
  EXPECT_LT(close, 100);  // 20 expected
}

}  // namespace
}  // namespace weft::data
