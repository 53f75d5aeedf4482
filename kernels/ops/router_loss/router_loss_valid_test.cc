// Losses of sigmoid routers, and of some tokens only.
#include <cmath>
#include <cstdint>

#include "gtest/gtest.h"
#include "kernels/ops/router_loss/router_loss.h"
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
constexpr int64_t kTokens = 50;  // of a group
constexpr int64_t kAll = kGroups * kTokens;
constexpr int64_t kExperts = 37;
constexpr int64_t kTopK = 3;

// Scores, choices and logits of all tokens, of which every fourth is padding.
class RouterLossOfValidTokens : public ::testing::Test {
 protected:
  RouterLossOfValidTokens() : logits_(RandomFloats(kAll * kExperts, 1, 2.0)) {
    for (const float logit : logits_) {
      scores_.push_back(1 / (1 + std::exp(-logit)));
    }
    for (int64_t t = 0; t < kAll; ++t) {
      valid_.push_back(t % 4 != 2);
      for (int64_t j = 0; j < kTopK; ++j) {
        index_.push_back((t * t + 5 * j) % kExperts);
      }
    }
  }

  // d_scores of an op that is one of the two.
  Floats GradOf(bool in_groups, const int32_t* valid) const {
    Floats d_scores = Unwritten(kAll * kExperts);
    Ints counts(kGroups * kExperts);
    for (size_t i = 0; i < counts.size(); ++i) counts[i] = i % 11;
    const Floats totals(counts.begin(), counts.begin() + kExperts);
    if (in_groups) {
      GroupBalanceGrad({kGroups, kTokens, kExperts, 0.3, counts.data(),
                        d_scores.data(), false, half_.data(), valid},
                       InlineStream());
    } else {
      BalanceGrad({kAll, kExperts, 0.3, totals.data(), d_scores.data(), false,
                   half_.data(), valid},
                  InlineStream());
    }
    return d_scores;
  }

  const Floats half_ = {0.5f};
  const Floats logits_;
  Floats scores_;
  Ints index_, valid_;
};

TEST_F(RouterLossOfValidTokens, InputsAreNormalizedAndWithoutPadding) {
  for (const bool normalize : {false, true}) {
    Doubles expected(scores_.size());
    for (int64_t t = 0; t < kAll; ++t) {
      double sum = 0;
      for (int64_t e = 0; e < kExperts; ++e) sum += scores_[t * kExperts + e];
      for (int64_t e = 0; e < kExperts; ++e) {
        expected[t * kExperts + e] =
            valid_[t] * scores_[t * kExperts + e] / (normalize ? sum : 1);
      }
    }
    Floats scores = Unwritten(scores_.size());
    Ints index(index_.size(), -2);
    LossInputs({kAll, kExperts, kTopK, normalize, scores_.data(), index_.data(),
                valid_.data(), scores.data(), index.data()},
               InlineStream());
    EXPECT_TRUE(Close(scores, expected, 1e-30, 1e-6));
    for (size_t s = 0; s < index.size(); ++s) {
      ASSERT_EQ(index[s], valid_[s / kTopK] ? index_[s] : -1) << s;
    }
    Floats in_place = scores_;
    LossInputs({kAll, kExperts, kTopK, normalize, in_place.data(), nullptr,
                valid_.data(), in_place.data(), nullptr},
               InlineStream());
    EXPECT_TRUE(SameBits(in_place, scores));
  }
}

TEST_F(RouterLossOfValidTokens, GroupsCountNoChoiceThatIsNone) {
  Ints index = index_;
  Ints expected(kGroups * kExperts);
  for (int64_t s = 0; s < kAll * kTopK; ++s) {
    if (!valid_[s / kTopK]) index[s] = -1;
    if (index[s] >= 0) ++expected[s / kTopK / kTokens * kExperts + index[s]];
  }
  double sum = 0;
  for (int64_t i = 0; i < kAll * kExperts; ++i) {
    const int64_t group = i / (kTokens * kExperts);
    sum += 0.3 * 0.5 * scores_[i] * expected[group * kExperts + i % kExperts];
  }
  Ints counts(expected.size(), -1);
  Doubles loss = {NAN};
  GroupBalanceLoss({kGroups, kTokens, kExperts, kTopK, 0.3, scores_.data(),
                    index.data(), counts.data(), loss.data(), half_.data()},
                   InlineStream());
  EXPECT_EQ(counts, expected);
  EXPECT_NEAR(loss[0] / sum, 1, 1e-12);
}

TEST_F(RouterLossOfValidTokens, BalanceLossTakesAWeight) {
  const Floats counts = RandomFloats(kExperts, 3);
  const Doubles sums = testing::ToDoubles(RandomFloats(kExperts, 4));
  Doubles losses = {NAN, NAN};
  BalanceLoss({kExperts, 0.3, counts.data(), sums.data(), &losses[0]},
              InlineStream());
  BalanceLoss(
      {kExperts, 0.3, counts.data(), sums.data(), &losses[1], half_.data()},
      InlineStream());
  EXPECT_DOUBLE_EQ(losses[1], losses[0] / 2);
}

TEST_F(RouterLossOfValidTokens, PaddingHasNoGradientOfBalance) {
  for (const bool in_groups : {false, true}) {
    Floats expected = GradOf(in_groups, nullptr);
    for (int64_t i = 0; i < kAll * kExperts; ++i) {
      if (!valid_[i / kExperts]) expected[i] = 0;
    }
    EXPECT_TRUE(SameBits(GradOf(in_groups, valid_.data()), expected));
  }
}

TEST_F(RouterLossOfValidTokens, ZLossAndItsGradientFromLogits) {
  const auto of = [&](const Doubles& logits) {
    double sum = 0;
    for (int64_t t = 0; t < kAll; ++t) {
      double exps = 0;
      for (int64_t e = 0; e < kExperts; ++e) {
        exps += std::exp(logits[t * kExperts + e]);
      }
      sum += valid_[t] * std::pow(std::log(exps), 2);
    }
    return 0.3 * 0.5 * sum;
  };
  const Doubles logits = testing::ToDoubles(logits_);
  Floats lse = Unwritten(kAll);
  Doubles loss = {NAN};
  ZLoss({kAll, kExperts, 0.3, logits_.data(), lse.data(), loss.data(),
         half_.data(), valid_.data()},
        InlineStream());
  EXPECT_NEAR(loss[0] / of(logits), 1, 1e-13);
  Floats grad(logits_.size());
  ZGrad({kAll, kExperts, 0.3, lse.data(), nullptr, grad.data(), half_.data(),
         valid_.data(), logits_.data()},
        InlineStream());
  Doubles expected(logits.size());
  for (int64_t t = 0; t < kAll; ++t) {
    for (int64_t i = t * kExperts; i < (t + 1) * kExperts; ++i) {
      expected[i] = valid_[t] * 0.3 * lse[t] * std::exp(logits[i] - lse[t]);
    }
  }
  EXPECT_TRUE(Close(grad, expected, 1e-7, 1e-6));
}

}  // namespace
}  // namespace weft::ops
