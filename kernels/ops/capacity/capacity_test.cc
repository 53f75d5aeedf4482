#include "kernels/ops/capacity/capacity.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Floats;
using testing::InlineStream;
using testing::Ints;
using testing::RandomFloats;

struct Case {
  std::string name;
  int64_t tokens;
  int64_t topk;
  int64_t experts;
  int64_t capacity;
  // Probabilities are multiples of 1 / levels, so that many are equal.
  int levels = 1 << 20;
};

class Capacity : public ::testing::TestWithParam<Case> {
 protected:
  Capacity() {
    std::mt19937 generator(7);
    for (int64_t t = 0; t < c_.tokens; ++t) {
      // Lower experts are chosen more often.
      const int32_t first = generator() % c_.experts * (generator() % 2);
      for (int64_t j = 0; j < c_.topk; ++j) {
        index_.push_back((first + j) % c_.experts);
        prob_.push_back(static_cast<float>(generator() % c_.levels) /
                        c_.levels);
      }
    }
  }

  Ints Keep() const {
    Ints kept(index_.size(), -2), scratch(index_.size());
    KeepWithinCapacity(
        {c_.tokens, c_.topk, c_.experts, c_.capacity, index_.data(),
         prob_.data(), kept.data(), scratch.data()},
        InlineStream());
    return kept;
  }

  const Case c_ = GetParam();
  Ints index_;
  Floats prob_;
};

TEST_P(Capacity, EachExpertKeepsItsLargestOfEqualOnesTheEarlier) {
  const Ints kept = Keep();
  for (size_t s = 0; s < index_.size(); ++s) {
    int64_t before = 0;
    for (size_t other = 0; other < index_.size(); ++other) {
      if (index_[other] != index_[s]) continue;
      before +=
          prob_[other] > prob_[s] || (prob_[other] == prob_[s] && other < s);
    }
    ASSERT_EQ(kept[s], before < c_.capacity ? index_[s] : -1) << s;
  }
}

TEST_P(Capacity, CountsAreOfKeptSlotsOfValidTokens) {
  const Ints kept = Keep();
  Ints valid(c_.tokens);
  for (int64_t t = 0; t < c_.tokens; ++t) valid[t] = t % 3 != 1;
  Ints all(c_.experts), of_valid(c_.experts);
  for (size_t s = 0; s < kept.size(); ++s) {
    if (kept[s] < 0) continue;
    ++all[kept[s]];
    of_valid[kept[s]] += valid[s / c_.topk];
  }
  Ints counts(c_.experts, -1);
  CountChoicesArgs args = {c_.tokens,   c_.topk, c_.experts,
                           kept.data(), nullptr, counts.data()};
  CountChoices(args, InlineStream());
  EXPECT_EQ(counts, all);
  args.valid = valid.data();
  CountChoices(args, InlineStream());
  EXPECT_EQ(counts, of_valid);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Capacity,
    ::testing::Values(Case{"Some", 40, 2, 4, 7}, Case{"One", 30, 3, 5, 1},
                      Case{"EqualOnes", 50, 2, 3, 11, 4},
                      Case{"AllEqual", 50, 2, 3, 11, 1},
                      Case{"MoreThanThereAre", 20, 2, 4, 100},
                      Case{"Many", 700, 4, 9, 150, 64},
                      Case{"OneExpert", 33, 1, 1, 10, 8},
                      Case{"NoToken", 0, 2, 4, 3}),
    [](const auto& info) { return info.param.name; });

TEST(CapacityTest, CountsAddUp) {
  const Ints counts = {3, 0, 2000000000};
  testing::Doubles first(3, NAN), second(3, NAN);
  AddCounts({3, counts.data(), nullptr, first.data()}, InlineStream());
  EXPECT_EQ(first, (testing::Doubles{3, 0, 2e9}));
  AddCounts({3, counts.data(), first.data(), second.data()}, InlineStream());
  EXPECT_EQ(second, (testing::Doubles{6, 0, 4e9}));
}

TEST(CapacityTest, EveryCountIsFilled) {
  Ints counts(300, -1);
  FillCounts({299, 7, counts.data()}, InlineStream());
  Ints expected(300, 7);
  expected.back() = -1;
  EXPECT_EQ(counts, expected);
}

TEST(CapacityTest, WhatIsNotANumberComesLast) {
  const Ints index(4, 0);
  const Floats prob = {NAN, 0.5f, NAN, 0.25f};
  Ints kept(4, -2), scratch(4);
  KeepWithinCapacity(
      {4, 1, 1, 3, index.data(), prob.data(), kept.data(), scratch.data()},
      InlineStream());
  EXPECT_EQ(kept, (Ints{0, 0, -1, 0}));
}

}  // namespace
}  // namespace weft::ops
