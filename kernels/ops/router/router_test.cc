#include "kernels/ops/router/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
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
using testing::Unwritten;

struct Result {
  Floats scores;
  Ints index;
  Floats prob;
  Ints counts;
};

Result Forward(const RouterConfig& config, int64_t tokens, const Floats& logits,
               const Ints& given = {}) {
  Result r = {Unwritten(tokens * config.num_experts),
              Ints(tokens * config.topk, -1), Unwritten(tokens * config.topk),
              Ints(config.num_experts, -1)};
  RouterForward(
      {config, tokens, logits.data(), r.scores.data(), r.index.data(),
       r.prob.data(), r.counts.data(), given.empty() ? nullptr : given.data()},
      InlineStream());
  return r;
}

Doubles Softmax(const double* logits, int64_t count) {
  const double max = *std::max_element(logits, logits + count);
  Doubles s(count);
  for (int64_t i = 0; i < count; ++i) s[i] = std::exp(logits[i] - max);
  const double sum = std::accumulate(s.begin(), s.end(), 0.0);
  for (double& v : s) v /= sum;
  return s;
}

// Probabilities of given choices, from the definition in the header.
Doubles Probs(const RouterConfig& config, const Doubles& logits,
              const Ints& index) {
  Doubles prob(index.size());
  for (size_t i = 0; i < index.size(); i += config.topk) {
    const int64_t token = i / config.topk;
    const Doubles s =
        Softmax(&logits[token * config.num_experts], config.num_experts);
    double sum = 0;
    for (int64_t j = 0; j < config.topk; ++j) sum += s[index[i + j]];
    if (!config.normalize_topk) sum = 1;
    for (int64_t j = 0; j < config.topk; ++j) {
      prob[i + j] = config.scaling * s[index[i + j]] / sum;
    }
  }
  return prob;
}

struct Case {
  std::string name;
  int64_t tokens;
  int64_t experts;
  int64_t topk;
  bool normalize;
  float scaling = 1.0f;
};

class Router : public ::testing::TestWithParam<Case> {
 protected:
  Router() {
    const Case& c = GetParam();
    tokens_ = c.tokens;
    config_.num_experts = c.experts;
    config_.topk = c.topk;
    config_.normalize_topk = c.normalize;
    config_.scaling = c.scaling;
    logits_ = RandomFloats(c.tokens * c.experts, 1, 2.0);
    result_ = Forward(config_, tokens_, logits_);
  }

  int64_t tokens_ = 0;
  RouterConfig config_;
  Floats logits_;
  Result result_;
};

TEST_P(Router, ScoresAreTheSoftmaxOverAllExperts) {
  const Doubles logits = testing::ToDoubles(logits_);
  Doubles expected;
  for (int64_t t = 0; t < tokens_; ++t) {
    const Doubles s =
        Softmax(&logits[t * config_.num_experts], config_.num_experts);
    expected.insert(expected.end(), s.begin(), s.end());
  }
  EXPECT_TRUE(Close(result_.scores, expected, 0, 1e-6));
}

TEST_P(Router, ChoosesTheLargestInOrder) {
  for (int64_t t = 0; t < tokens_; ++t) {
    std::vector<int32_t> order(config_.num_experts);
    std::iota(order.begin(), order.end(), 0);
    const float* logits = &logits_[t * config_.num_experts];
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[a] > logits[b];
    });
    for (int64_t j = 0; j < config_.topk; ++j) {
      EXPECT_EQ(result_.index[t * config_.topk + j], order[j]);
    }
  }
}

TEST_P(Router, ProbabilitiesFollowTheDefinition) {
  EXPECT_TRUE(Close(result_.prob,
                    Probs(config_, testing::ToDoubles(logits_), result_.index),
                    0, 1e-6));
}

TEST_P(Router, CountsAreSlotsPerExpert) {
  Ints counts(config_.num_experts);
  for (const int32_t e : result_.index) ++counts[e];
  EXPECT_EQ(result_.counts, counts);
}

TEST_P(Router, BackwardIsTheGradient) {
  const Floats d_prob = RandomFloats(result_.prob.size(), 2);
  const Floats d_scores = RandomFloats(result_.scores.size(), 3);
  for (const bool with_scores : {false, true}) {
    const auto loss = [&](const Doubles& logits) {
      double sum = testing::Dot(Probs(config_, logits, result_.index), d_prob);
      for (int64_t t = 0; with_scores && t < tokens_; ++t) {
        const int64_t at = t * config_.num_experts;
        const Doubles s = Softmax(&logits[at], config_.num_experts);
        for (size_t e = 0; e < s.size(); ++e) sum += s[e] * d_scores[at + e];
      }
      return sum;
    };
    Floats d_logits = Unwritten(logits_.size());
    RouterBackward({config_, tokens_, result_.scores.data(),
                    result_.index.data(), result_.prob.data(), d_prob.data(),
                    with_scores ? d_scores.data() : nullptr, d_logits.data()},
                   InlineStream());
    EXPECT_TRUE(Close(
        d_logits, testing::NumericGradient(loss, testing::ToDoubles(logits_)),
        1e-6, 1e-5));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Router,
    ::testing::Values(
        Case{"Normalized", 6, 8, 2, true}, Case{"Raw", 6, 8, 2, false},
        Case{"ScaledNormalized", 5, 13, 4, true, 2.5f},
        Case{"ScaledRaw", 5, 13, 4, false, 2.5f},
        Case{"AllExperts", 3, 6, 6, true},
        Case{"AllExpertsRaw", 3, 6, 6, false}, Case{"OneExpert", 3, 1, 1, true},
        Case{"TopOne", 4, 5, 1, true}, Case{"TopOneRaw", 4, 5, 1, false},
        Case{"Many", 3, 40, 8, true}, Case{"OneToken", 1, 8, 2, true},
        Case{"NoToken", 0, 8, 2, true}),
    [](const auto& info) { return info.param.name; });

RouterConfig Config(int64_t experts, int64_t topk) {
  RouterConfig config;
  config.num_experts = experts;
  config.topk = topk;
  return config;
}

TEST(RouterTest, OfEqualLogitsTheLowerIndexComesFirst) {
  const Result r = Forward(Config(5, 3), 2, {1, 2, 2, 1, 2, 0, 0, 0, 0, 0});
  EXPECT_EQ(r.index, (Ints{1, 2, 4, 0, 1, 2}));
}

TEST(RouterTest, OneExpertGetsEveryToken) {
  Floats logits(4 * 8, -3.0f);
  for (int64_t t = 0; t < 4; ++t) logits[t * 8 + 6] = 5.0f;
  const Result r = Forward(Config(8, 1), 4, logits);
  EXPECT_EQ(r.counts, (Ints{0, 0, 0, 0, 0, 0, 4, 0}));
}

TEST(RouterTest, ExtremeLogitsKeepTheChosenSumAtOne) {
  const Result r = Forward(Config(4, 2), 1, {1000, -1000, 999, -1e30f});
  EXPECT_NEAR(r.prob[0] + r.prob[1], 1.0, 1e-6);
  EXPECT_NEAR(r.prob[1], std::exp(-1.0) / (1 + std::exp(-1.0)), 1e-6);
}

TEST(RouterTest, NotANumberStillYieldsValidDistinctIndices) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Result r = Forward(Config(4, 3), 1, {nan, 1, nan, nan});
  Ints index = r.index;
  std::sort(index.begin(), index.end());
  EXPECT_EQ(std::unique(index.begin(), index.end()), index.end());
  EXPECT_GE(index.front(), 0);
  EXPECT_LT(index.back(), 4);
  EXPECT_TRUE(std::isnan(r.prob[0]) || std::isnan(r.scores[0]));
}

// Of what a job routes: against the definition in fp64.
class RouterAtSize : public Router {
 protected:
  // Logits in steps of 1/2, so that a row has many equal ones and zeros of
  // both signs.
  static Floats Coarse(Floats logits) {
    for (float& logit : logits) logit = std::round(2 * logit) / 2;
    return logits;
  }

  // d_logits from the formulas of the header and the derivative of softmax.
  Doubles Backward(const Floats& d_prob, const Floats& d_scores) const {
    const Doubles logits = testing::ToDoubles(logits_);
    const Doubles prob = Probs(config_, logits, result_.index);
    Doubles d_logits(logits.size());
    for (int64_t t = 0; t < tokens_; ++t) {
      const int64_t at = t * config_.num_experts;
      const Doubles s = Softmax(&logits[at], config_.num_experts);
      Doubles ds(d_scores.begin() + at, d_scores.begin() + at + s.size());
      double routed = 0;
      for (int64_t j = t * config_.topk; j < (t + 1) * config_.topk; ++j) {
        routed += prob[j] / config_.scaling * d_prob[j];
        if (!config_.normalize_topk) {
          ds[result_.index[j]] += config_.scaling * d_prob[j];
        }
      }
      const double mean =
          std::inner_product(s.begin(), s.end(), ds.begin(), 0.0);
      for (size_t e = 0; e < s.size(); ++e) {
        d_logits[at + e] = s[e] * (ds[e] - mean);
      }
      if (!config_.normalize_topk) continue;
      for (int64_t j = t * config_.topk; j < (t + 1) * config_.topk; ++j) {
        d_logits[at + result_.index[j]] += prob[j] * (d_prob[j] - routed);
      }
    }
    return d_logits;
  }
};

TEST_P(RouterAtSize, ForwardFollowsTheDefinition) {
  const Doubles logits = testing::ToDoubles(logits_);
  Doubles scores;
  Ints counts(config_.num_experts);
  for (int64_t t = 0; t < tokens_; ++t) {
    const Doubles s =
        Softmax(&logits[t * config_.num_experts], config_.num_experts);
    scores.insert(scores.end(), s.begin(), s.end());
  }
  for (const int32_t e : result_.index) ++counts[e];
  // A difference of logits of 16 is rounded by up to 1e-6.
  EXPECT_TRUE(Close(result_.scores, scores, 0, 3e-6));
  EXPECT_TRUE(
      Close(result_.prob, Probs(config_, logits, result_.index), 0, 3e-6));
  EXPECT_EQ(result_.counts, counts);
}

TEST_P(RouterAtSize, OfEqualLogitsTheLowerIndexComesFirst) {
  const Floats logits = Coarse(logits_);
  const Result r = Forward(config_, tokens_, logits);
  for (int64_t t = 0; t < tokens_; ++t) {
    std::vector<int32_t> order(config_.num_experts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[t * config_.num_experts + a] >
             logits[t * config_.num_experts + b];
    });
    for (int64_t j = 0; j < config_.topk; ++j) {
      ASSERT_EQ(r.index[t * config_.topk + j], order[j]) << t << " " << j;
    }
  }
}

TEST_P(RouterAtSize, BackwardFollowsTheDefinition) {
  const Floats d_prob = RandomFloats(result_.prob.size(), 2);
  const Floats d_scores = RandomFloats(result_.scores.size(), 3);
  for (const bool with_scores : {false, true}) {
    Floats d_logits = Unwritten(logits_.size());
    RouterBackward({config_, tokens_, result_.scores.data(),
                    result_.index.data(), result_.prob.data(), d_prob.data(),
                    with_scores ? d_scores.data() : nullptr, d_logits.data()},
                   InlineStream());
    const Doubles expected =
        Backward(d_prob, with_scores ? d_scores : Floats(d_scores.size()));
    EXPECT_TRUE(Close(d_logits, expected, 3e-6, 1e-5));
  }
}

TEST_P(RouterAtSize, GivesTheSameBitsAgain) {
  const Result again = Forward(config_, tokens_, logits_);
  EXPECT_TRUE(testing::SameBits(again.scores, result_.scores));
  EXPECT_TRUE(testing::SameBits(again.prob, result_.prob));
  EXPECT_EQ(again.index, result_.index);
  EXPECT_EQ(again.counts, result_.counts);
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, RouterAtSize,
    ::testing::Values(Case{"ThirtyTwoTopFour", 9001, 32, 4, true},
                      Case{"ThirtyTwoTopFourRaw", 9001, 32, 4, false, 2.5f},
                      Case{"FiveHundredTwelve", 203, 512, 16, true},
                      Case{"HundredThirty", 301, 130, 8, false},
                      Case{"ManyChoices", 17, 600, 70, true, 0.5f},
                      Case{"ManyChoicesRaw", 17, 600, 70, false}),
    [](const auto& info) { return info.param.name; });

// For each token the experts after its own choices, in turn.
Ints Neighbours(const RouterConfig& config, const Ints& index) {
  Ints given(index.size());
  for (size_t i = 0; i < index.size(); ++i) {
    given[i] = (index[i] + 1) % config.num_experts;
  }
  return given;
}

TEST_P(RouterAtSize, GivenExpertsGetTheProbabilitiesTheirScoresSay) {
  const Ints given = Neighbours(config_, result_.index);
  const Result r = Forward(config_, tokens_, logits_, given);
  EXPECT_EQ(r.index, given);
  EXPECT_TRUE(testing::SameBits(r.scores, result_.scores));
  EXPECT_TRUE(Close(r.prob, Probs(config_, testing::ToDoubles(logits_), given),
                    0, 3e-6));
  Ints counts(config_.num_experts);
  for (const int32_t e : given) ++counts[e];
  EXPECT_EQ(r.counts, counts);
}

TEST_P(RouterAtSize, OwnChoicesGivenBackChangeNoBit) {
  const Result r = Forward(config_, tokens_, logits_, result_.index);
  EXPECT_EQ(r.index, result_.index);
  EXPECT_TRUE(testing::SameBits(r.prob, result_.prob));
  EXPECT_EQ(r.counts, result_.counts);
}

TEST(RouterTest, TokensForWhichNothingIsGivenChooseTheirOwn) {
  const Floats logits = {4, 3, 2, 1, 1, 2, 3, 4, 4, 3, 2, 1};
  const Result r = Forward(Config(4, 2), 3, logits, {-1, -1, 0, 1, -1, -1});
  EXPECT_EQ(r.index, (Ints{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(r.counts, (Ints{3, 3, 0, 0}));
}

// Their logits are so far below the largest that e to them is no number above
// zero.
TEST(RouterTest, GivenExpertsFarBelowTheLargestShareOne) {
  const Result r = Forward(Config(4, 2), 1, {500, 0, 1, -1000}, {1, 2});
  EXPECT_NEAR(r.prob[0] + r.prob[1], 1.0, 1e-6);
  EXPECT_NEAR(r.prob[1], 1 / (1 + std::exp(-1.0)), 1e-6);
}

TEST(RouterTest, BalancedChoicesGoRoundWhateverTheLogits) {
  constexpr int64_t kTokens = 24;
  constexpr int64_t kExperts = 16;
  constexpr int64_t kTopk = 4;
  const Floats logits = RandomFloats(kTokens * kExperts, 5, 3.0);
  Floats scores = Unwritten(kTokens * kExperts);
  Floats prob = Unwritten(kTokens * kTopk);
  Ints index(kTokens * kTopk, -1);
  Ints counts(kExperts, -1);
  RouterForwardArgs args;
  args.config.num_experts = kExperts;
  args.config.topk = kTopk;
  args.config.normalize_topk = false;
  args.config.balanced = true;
  args.tokens = kTokens;
  args.logits = logits.data();
  args.scores = scores.data();
  args.topk_index = index.data();
  args.topk_prob = prob.data();
  args.counts = counts.data();
  RouterForward(args, InlineStream());
  for (int64_t slot = 0; slot < kTokens * kTopk; ++slot) {
    ASSERT_EQ(index[slot], slot % kExperts);
    EXPECT_FLOAT_EQ(prob[slot], scores[slot / kTopk * kExperts + index[slot]]);
  }
  for (int32_t count : counts) EXPECT_EQ(count, kTokens * kTopk / kExperts);
}

}  // namespace
}  // namespace weft::ops
