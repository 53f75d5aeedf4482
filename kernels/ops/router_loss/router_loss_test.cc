#include "kernels/ops/router_loss/router_loss.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Close;
using testing::Doubles;
using testing::Floats;
using testing::InlineStream;
using testing::Ints;
using testing::RandomFloats;
using testing::SameBits;
using testing::Unwritten;

constexpr int64_t kGroups = 3;
constexpr int64_t kTokens = 5;  // of a group
constexpr int64_t kAll = kGroups * kTokens;
constexpr int64_t kExperts = 7;
constexpr int64_t kTopK = 2;

double LogSumExp(const double* logits) {
  double sum = 0;
  for (int64_t e = 0; e < kExperts; ++e) sum += std::exp(logits[e]);
  return std::log(sum);
}

Doubles Softmax(const Doubles& logits) {
  Doubles p(logits.size());
  for (size_t i = 0; i < p.size(); ++i) {
    const double* row = &logits[i / kExperts * kExperts];
    p[i] = std::exp(logits[i] - LogSumExp(row));
  }
  return p;
}

Floats Rounded(const Doubles& values) {
  return Floats(values.begin(), values.end());
}

// Logits of all tokens with their scores and choices.
class RouterLoss : public ::testing::Test {
 protected:
  RouterLoss() {
    logits_ = RandomFloats(kAll * kExperts, 1, 2.0);
    scores_ = Rounded(Softmax(testing::ToDoubles(logits_)));
    counts_.resize(kGroups * kExperts);
    total_.resize(kExperts);
    for (int64_t t = 0; t < kAll; ++t) {
      std::vector<int32_t> order(kExperts);
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return logits_[t * kExperts + a] > logits_[t * kExperts + b];
      });
      for (int64_t j = 0; j < kTopK; ++j) {
        index_.push_back(order[j]);
        ++counts_[t / kTokens * kExperts + order[j]];
        ++total_[order[j]];
      }
    }
  }

  // factor * sum over tokens and experts of P_te times `count(t, e)`.
  template <typename Count>
  double Balance(const Doubles& scores, double factor, Count count) const {
    double sum = 0;
    for (int64_t i = 0; i < kAll * kExperts; ++i) {
      sum += scores[i] * count(i / kExperts, i % kExperts);
    }
    return factor * sum;
  }

  Floats logits_, scores_;
  Ints index_;
  Ints counts_;   // [kGroups, kExperts]
  Floats total_;  // [kExperts]
};

TEST_F(RouterLoss, BalanceLossMatchesADoubleLoop) {
  Doubles sums(kExperts, NAN);
  ScoreSums({kAll, kExperts, scores_.data(), sums.data()}, InlineStream());
  Doubles loss = {NAN};
  BalanceLoss({kExperts, 0.3, total_.data(), sums.data(), loss.data()},
              InlineStream());
  const double expected =
      Balance(testing::ToDoubles(scores_), 0.3,
              [&](int64_t t, int64_t e) { return total_[e]; });
  EXPECT_NEAR(loss[0] / expected, 1, 1e-14);
}

TEST_F(RouterLoss, BalanceGradIsTheGradient) {
  Floats grad = Unwritten(kAll * kExperts);
  BalanceGradArgs args = {kAll, kExperts, 0.3, total_.data(), grad.data()};
  BalanceGrad(args, InlineStream());
  const auto loss = [&](const Doubles& scores) {
    return Balance(scores, 0.3,
                   [&](int64_t t, int64_t e) { return total_[e]; });
  };
  const Doubles expected =
      testing::NumericGradient(loss, testing::ToDoubles(scores_));
  EXPECT_TRUE(Close(grad, expected, 1e-6, 1e-6));
  args.accumulate = true;
  BalanceGrad(args, InlineStream());
  Floats twice = Rounded(expected);
  for (float& g : twice) g *= 2;
  EXPECT_TRUE(Close(grad, testing::ToDoubles(twice), 1e-6, 1e-6));
}

TEST_F(RouterLoss, GroupBalanceCountsAndSumsEachGroup) {
  Ints counts(counts_.size(), -1);
  Doubles loss = {NAN};
  GroupBalanceLoss({kGroups, kTokens, kExperts, kTopK, 0.3, scores_.data(),
                    index_.data(), counts.data(), loss.data()},
                   InlineStream());
  EXPECT_EQ(counts, counts_);
  const auto of = [&](const Doubles& scores) {
    return Balance(scores, 0.3, [&](int64_t t, int64_t e) {
      return counts_[t / kTokens * kExperts + e];
    });
  };
  EXPECT_NEAR(loss[0] / of(testing::ToDoubles(scores_)), 1, 1e-14);
  Floats grad = Unwritten(kAll * kExperts);
  GroupBalanceGradArgs args = {kGroups, kTokens,        kExperts,
                               0.3,     counts_.data(), grad.data()};
  GroupBalanceGrad(args, InlineStream());
  const Doubles expected =
      testing::NumericGradient(of, testing::ToDoubles(scores_));
  EXPECT_TRUE(Close(grad, expected, 1e-6, 1e-6));
  args.accumulate = true;
  GroupBalanceGrad(args, InlineStream());
  Floats twice = Rounded(expected);
  for (float& g : twice) g *= 2;
  EXPECT_TRUE(Close(grad, testing::ToDoubles(twice), 1e-6, 1e-6));
}

TEST_F(RouterLoss, ZLossAndItsGradient) {
  Floats lse = Unwritten(kAll);
  Doubles loss = {NAN};
  ZLoss({kAll, kExperts, 0.3, logits_.data(), lse.data(), loss.data()},
        InlineStream());
  const auto of = [&](const Doubles& logits) {
    double sum = 0;
    for (int64_t t = 0; t < kAll; ++t) {
      sum += std::pow(LogSumExp(&logits[t * kExperts]), 2);
    }
    return 0.3 * sum;
  };
  const Doubles logits = testing::ToDoubles(logits_);
  EXPECT_NEAR(loss[0] / of(logits), 1, 1e-14);
  const Floats before = RandomFloats(logits_.size(), 4);
  Floats grad = before;
  ZGrad({kAll, kExperts, 0.3, lse.data(), scores_.data(), grad.data()},
        InlineStream());
  Doubles expected = testing::NumericGradient(of, logits);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
  EXPECT_TRUE(Close(grad, expected, 1e-6, 1e-6));
}

TEST_F(RouterLoss, ZLossOfLargeLogitsIsFinite) {
  const Floats logits = {1000, 999, -1e30f, -1000, 0, 0, 0};
  Floats lse = Unwritten(1);
  Doubles loss = {NAN};
  ZLoss({1, kExperts, 1, logits.data(), lse.data(), loss.data()},
        InlineStream());
  EXPECT_NEAR(lse[0], 1000 + std::log1p(std::exp(-1.0)), 1e-4);
  EXPECT_NEAR(loss[0], std::pow(1000 + std::log1p(std::exp(-1.0)), 2), 1e-6);
}

TEST_F(RouterLoss, CountsAsFloatsArePaddedWithZeros) {
  const Ints counts = {3, 0, 16777216};
  Floats out = Unwritten(5);
  CountsToFloats({3, 5, counts.data(), out.data()}, InlineStream());
  EXPECT_TRUE(SameBits(out, {3, 0, 16777216, 0, 0}));
}

// A microbatch of a job: four sequences, which no chunk of tokens divides.
class RouterLossAtSize : public ::testing::Test {
 protected:
  static constexpr int64_t kSequences = 4;
  static constexpr int64_t kSequence = 1501;
  static constexpr int64_t kRows = kSequences * kSequence;
  static constexpr int64_t kMany = 96;

  RouterLossAtSize() {
    for (int64_t i = 0; i < 4 * kRows; ++i) {
      index_[i] = (i * 2654435761u >> 8) % kMany;
    }
  }

  // As the op, in a plain loop.
  Ints Counts() const {
    Ints counts(kSequences * kMany);
    for (int64_t i = 0; i < 4 * kRows; ++i) {
      ++counts[i / (4 * kSequence) * kMany + index_[i]];
    }
    return counts;
  }

  const Floats logits_ = RandomFloats(kRows * kMany, 1, 2.0);
  const Floats scores_ = RandomFloats(kRows * kMany, 2);
  Ints index_ = Ints(4 * kRows);
};

TEST_F(RouterLossAtSize, ScoreSumsAreThoseOfAllTokens) {
  std::vector<long double> expected(kMany);
  for (int64_t i = 0; i < kRows * kMany; ++i) {
    expected[i % kMany] += scores_[i];
  }
  Doubles sums(kMany, NAN);
  ScoreSums({kRows, kMany, scores_.data(), sums.data()}, InlineStream());
  for (int64_t e = 0; e < kMany; ++e) {
    EXPECT_NEAR(sums[e], static_cast<double>(expected[e]), 1e-11) << e;
  }
  Doubles again(kMany, NAN);
  ScoreSums({kRows, kMany, scores_.data(), again.data()}, InlineStream());
  EXPECT_EQ(sums, again);
}

TEST_F(RouterLossAtSize, GroupsHaveTheirOwnCountsLossesAndGradients) {
  const Ints expected = Counts();
  long double sum = 0;
  Floats grads(kRows * kMany);
  for (int64_t i = 0; i < kRows * kMany; ++i) {
    const int64_t group = i / (kSequence * kMany);
    const int32_t count = expected[group * kMany + i % kMany];
    sum += static_cast<long double>(count) * scores_[i];
    grads[i] = static_cast<float>(0.3 * 0.5 * count);
  }
  Ints counts(kSequences * kMany, -1);
  Doubles loss = {NAN};
  GroupBalanceLoss({kSequences, kSequence, kMany, 4, 0.3, scores_.data(),
                    index_.data(), counts.data(), loss.data()},
                   InlineStream());
  EXPECT_EQ(counts, expected);
  EXPECT_NEAR(loss[0], 0.3 * static_cast<double>(sum), 1e-7);
  const Floats half = {0.5f};
  Floats d_scores = Unwritten(kRows * kMany);
  GroupBalanceGrad({kSequences, kSequence, kMany, 0.3, counts.data(),
                    d_scores.data(), false, half.data()},
                   InlineStream());
  EXPECT_TRUE(SameBits(d_scores, grads));
}

TEST_F(RouterLossAtSize, ZLossSumsAllTokens) {
  long double sum = 0;
  Doubles expected(kRows);
  for (int64_t t = 0; t < kRows; ++t) {
    double of_row = 0;
    for (int64_t e = 0; e < kMany; ++e) {
      of_row += std::exp(static_cast<double>(logits_[t * kMany + e]));
    }
    expected[t] = std::log(of_row);
    sum += expected[t] * expected[t];
  }
  Floats lse = Unwritten(kRows);
  Doubles loss = {NAN};
  ZLoss({kRows, kMany, 0.3, logits_.data(), lse.data(), loss.data()},
        InlineStream());
  EXPECT_TRUE(Close(lse, expected, 0, 1e-7));
  EXPECT_NEAR(loss[0] / (0.3 * static_cast<double>(sum)), 1, 1e-13);
}

TEST_F(RouterLoss, NoTokensHaveNoLoss) {
  Doubles sums(kExperts, NAN);
  ScoreSums({0, kExperts, nullptr, sums.data()}, InlineStream());
  EXPECT_EQ(sums, Doubles(kExperts));
  Doubles loss = {NAN, NAN, NAN};
  Ints counts(2 * kExperts, -1);
  GroupBalanceLoss(
      {2, 0, kExperts, kTopK, 0.3, nullptr, nullptr, counts.data(), &loss[0]},
      InlineStream());
  EXPECT_EQ(counts, Ints(2 * kExperts));
  GroupBalanceLoss(
      {0, 5, kExperts, kTopK, 0.3, nullptr, nullptr, nullptr, &loss[1]},
      InlineStream());
  ZLoss({0, kExperts, 0.3, nullptr, nullptr, &loss[2]}, InlineStream());
  EXPECT_EQ(loss, Doubles(3));
}

}  // namespace
}  // namespace weft::ops
