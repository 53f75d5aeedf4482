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
using testing::RandomFloats;
using testing::Unwritten;

struct Result {
  Floats scores;
  std::vector<int32_t> index;
  Floats prob;
  std::vector<int32_t> counts;
};

Result Forward(const RouterConfig& config, int64_t tokens,
               const Floats& logits) {
  Result r = {Unwritten(tokens * config.num_experts),
              std::vector<int32_t>(tokens * config.topk, -1),
              Unwritten(tokens * config.topk),
              std::vector<int32_t>(config.num_experts, -1)};
  RouterForward({config, tokens, logits.data(), r.scores.data(), r.index.data(),
                 r.prob.data(), r.counts.data()},
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
              const std::vector<int32_t>& index) {
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
  std::vector<int32_t> counts(config_.num_experts);
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
  EXPECT_EQ(r.index, (std::vector<int32_t>{1, 2, 4, 0, 1, 2}));
}

TEST(RouterTest, OneExpertGetsEveryToken) {
  Floats logits(4 * 8, -3.0f);
  for (int64_t t = 0; t < 4; ++t) logits[t * 8 + 6] = 5.0f;
  const Result r = Forward(Config(8, 1), 4, logits);
  EXPECT_EQ(r.counts, (std::vector<int32_t>{0, 0, 0, 0, 0, 0, 4, 0}));
}

TEST(RouterTest, ExtremeLogitsKeepTheChosenSumAtOne) {
  const Result r = Forward(Config(4, 2), 1, {1000, -1000, 999, -1e30f});
  EXPECT_NEAR(r.prob[0] + r.prob[1], 1.0, 1e-6);
  EXPECT_NEAR(r.prob[1], std::exp(-1.0) / (1 + std::exp(-1.0)), 1e-6);
}

TEST(RouterTest, NotANumberStillYieldsValidDistinctIndices) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Result r = Forward(Config(4, 3), 1, {nan, 1, nan, nan});
  std::vector<int32_t> index = r.index;
  std::sort(index.begin(), index.end());
  EXPECT_EQ(std::unique(index.begin(), index.end()), index.end());
  EXPECT_GE(index.front(), 0);
  EXPECT_LT(index.back(), 4);
  EXPECT_TRUE(std::isnan(r.prob[0]) || std::isnan(r.scores[0]));
}

}  // namespace
}  // namespace weft::ops
