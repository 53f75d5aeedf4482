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
  std::vector<int32_t> index_;
  std::vector<int32_t> counts_;  // [kGroups, kExperts]
  Floats total_;                 // [kExperts]
};

TEST_F(RouterLoss, BalanceLossMatchesADoubleLoop) {
  std::vector<double> sums(kExperts, NAN);
  ScoreSums({kAll, kExperts, scores_.data(), sums.data()}, InlineStream());
  double loss = NAN;
  BalanceLoss({kExperts, 0.3, total_.data(), sums.data(), &loss},
              InlineStream());
  const double expected =
      Balance(testing::ToDoubles(scores_), 0.3,
              [&](int64_t t, int64_t e) { return total_[e]; });
  EXPECT_NEAR(loss / expected, 1, 1e-14);
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
  std::vector<int32_t> counts(counts_.size(), -1);
  double loss = NAN;
  GroupBalanceLoss({kGroups, kTokens, kExperts, kTopK, 0.3, scores_.data(),
                    index_.data(), counts.data(), &loss},
                   InlineStream());
  EXPECT_EQ(counts, counts_);
  const auto of = [&](const Doubles& scores) {
    return Balance(scores, 0.3, [&](int64_t t, int64_t e) {
      return counts_[t / kTokens * kExperts + e];
    });
  };
  EXPECT_NEAR(loss / of(testing::ToDoubles(scores_)), 1, 1e-14);
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
  double loss = NAN;
  ZLoss({kAll, kExperts, 0.3, logits_.data(), lse.data(), &loss},
        InlineStream());
  const auto of = [&](const Doubles& logits) {
    double sum = 0;
    for (int64_t t = 0; t < kAll; ++t) {
      sum += std::pow(LogSumExp(&logits[t * kExperts]), 2);
    }
    return 0.3 * sum;
  };
  const Doubles logits = testing::ToDoubles(logits_);
  EXPECT_NEAR(loss / of(logits), 1, 1e-14);
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
  float lse = NAN;
  double loss = NAN;
  ZLoss({1, kExperts, 1, logits.data(), &lse, &loss}, InlineStream());
  EXPECT_NEAR(lse, 1000 + std::log1p(std::exp(-1.0)), 1e-4);
  EXPECT_NEAR(loss, std::pow(1000 + std::log1p(std::exp(-1.0)), 2), 1e-6);
}

TEST_F(RouterLoss, CountsAsFloatsArePaddedWithZeros) {
  const std::vector<int32_t> counts = {3, 0, 16777216};
  Floats out = Unwritten(5);
  CountsToFloats({3, 5, counts.data(), out.data()}, InlineStream());
  EXPECT_TRUE(SameBits(out, {3, 0, 16777216, 0, 0}));
}

}  // namespace
}  // namespace weft::ops
