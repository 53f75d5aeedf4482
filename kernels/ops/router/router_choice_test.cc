// Sigmoid scores, groups of experts, and the bias in choosing.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops/router/router.h"
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

struct Case {
  std::string name;
  int64_t tokens;
  RouterConfig config;
  bool with_bias = false;
};

// The numbers of RouterConfig in the order in which they are mostly said.
RouterConfig Config(int64_t experts, int64_t topk, RouterScore score,
                    bool normalize, float scaling = 1, int64_t groups = 0,
                    int64_t kept = 0, int64_t group_scores = 0) {
  RouterConfig config;
  config.num_experts = experts;
  config.topk = topk;
  config.score = score;
  config.normalize_topk = normalize;
  config.scaling = scaling;
  config.groups = groups;
  config.kept_groups = kept;
  config.group_scores = group_scores;
  return config;
}

// Indices of the `count` largest values, of equal ones the lower first.
template <typename T>
Ints Largest(const std::vector<T>& values, int64_t count) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return values[a] > values[b]; });
  return Ints(order.begin(), order.begin() + count);
}

class RouterChoice : public ::testing::TestWithParam<Case> {
 protected:
  struct Result {
    Floats scores, prob;
    Ints index, counts, plain;
  };

  RouterChoice()
      : config_(GetParam().config),
        tokens_(GetParam().tokens),
        logits_(RandomFloats(tokens_ * config_.num_experts, 1, 2.0)),
        bias_(RandomFloats(config_.num_experts, 2, 0.3)),
        result_(Forward(logits_)) {}

  Result Forward(const Floats& logits) const {
    const int64_t slots = tokens_ * config_.topk;
    Result r = {Unwritten(logits.size()), Unwritten(slots), Ints(slots, -1),
                Ints(config_.num_experts, -1), Ints(slots, -1)};
    RouterForwardArgs args = {config_,         tokens_,        logits.data(),
                              r.scores.data(), r.index.data(), r.prob.data(),
                              r.counts.data()};
    if (GetParam().with_bias) args.bias = bias_.data();
    args.plain_index = r.plain.data();
    RouterForward(args, InlineStream());
    return r;
  }

  bool softmax() const { return config_.score == RouterScore::kSoftmax; }

  // Scores of one token in fp64.
  Doubles Scores(const double* logits) const {
    Doubles s(config_.num_experts);
    double sum = 0;
    for (size_t e = 0; e < s.size(); ++e) {
      s[e] = softmax() ? std::exp(logits[e]) : 1 / (1 + std::exp(-logits[e]));
      sum += s[e];
    }
    for (double& v : s) v /= softmax() ? sum : 1;
    return s;
  }

  // Probabilities of the choices there were.
  Doubles Probs(const Doubles& logits) const {
    Doubles prob(result_.index.size());
    for (size_t i = 0; i < prob.size(); i += config_.topk) {
      const Doubles s = Scores(&logits[i / config_.topk * config_.num_experts]);
      double sum = 0;
      for (int64_t j = 0; j < config_.topk; ++j) sum += s[result_.index[i + j]];
      for (int64_t j = 0; j < config_.topk; ++j) {
        prob[i + j] = config_.scaling * s[result_.index[i + j]] /
                      (config_.normalize_topk ? sum : 1);
      }
    }
    return prob;
  }

  // What a token must choose, from the scores it got.
  Ints Expected(const Result& r, const Floats& logits, int64_t token) const {
    const int64_t experts = config_.num_experts;
    std::vector<float> values, scores;
    for (int64_t e = 0; e < experts; ++e) {
      const float score = r.scores[token * experts + e];
      const float bias = GetParam().with_bias ? bias_[e] : 0;
      scores.push_back(score + bias);
      values.push_back(softmax() ? logits[token * experts + e] : score + bias);
    }
    if (config_.groups == 0) return Largest(values, config_.topk);
    const int64_t size = experts / config_.groups;
    std::vector<double> groups;
    for (int64_t g = 0; g < config_.groups; ++g) {
      std::vector<float> of_group(scores.begin() + g * size,
                                  scores.begin() + (g + 1) * size);
      std::sort(of_group.rbegin(), of_group.rend());
      groups.push_back(std::accumulate(
          of_group.begin(), of_group.begin() + config_.group_scores, 0.0));
    }
    const Ints kept = Largest(groups, config_.kept_groups);
    for (int64_t e = 0; e < experts; ++e) {
      if (std::count(kept.begin(), kept.end(), e / size) == 0) {
        values[e] = -INFINITY;
      }
    }
    return Largest(values, config_.topk);
  }

  void ExpectChoices(const Result& r, const Floats& logits) const {
    for (int64_t t = 0; t < tokens_; ++t) {
      const Ints expected = Expected(r, logits, t);
      for (int64_t j = 0; j < config_.topk; ++j) {
        ASSERT_EQ(r.index[t * config_.topk + j], expected[j]) << t << " " << j;
      }
    }
  }

  const RouterConfig config_;
  const int64_t tokens_;
  const Floats logits_, bias_;
  const Result result_;
};

TEST_P(RouterChoice, ScoresAndProbabilitiesFollowTheDefinition) {
  const Doubles logits = testing::ToDoubles(logits_);
  Doubles scores;
  for (int64_t t = 0; t < tokens_; ++t) {
    const Doubles s = Scores(&logits[t * config_.num_experts]);
    scores.insert(scores.end(), s.begin(), s.end());
  }
  EXPECT_TRUE(Close(result_.scores, scores, 0, 3e-6));
  EXPECT_TRUE(Close(result_.prob, Probs(logits), 0, 3e-6));
}

TEST_P(RouterChoice, ChoosesTheLargestOfTheBestGroupsBiasIncluded) {
  ExpectChoices(result_, logits_);
}

TEST_P(RouterChoice, OfEqualExpertsAndGroupsTheLowerIndexComesFirst) {
  Floats logits = logits_;
  for (float& logit : logits) logit = std::round(logit / 2) * 2;
  ExpectChoices(Forward(logits), logits);
}

TEST_P(RouterChoice, PlainIndexKnowsNeitherBiasNorGroups) {
  const int64_t experts = config_.num_experts;
  for (int64_t t = 0; t < tokens_; ++t) {
    const std::vector<float> row(result_.scores.begin() + t * experts,
                                 result_.scores.begin() + (t + 1) * experts);
    const Ints expected = Largest(row, config_.topk);
    for (int64_t j = 0; j < config_.topk; ++j) {
      ASSERT_EQ(result_.plain[t * config_.topk + j], expected[j]);
    }
  }
}

TEST_P(RouterChoice, CountsAreSlotsPerExpert) {
  Ints counts(config_.num_experts);
  for (const int32_t e : result_.index) ++counts[e];
  EXPECT_EQ(result_.counts, counts);
}

TEST_P(RouterChoice, BackwardIsTheGradient) {
  const int64_t experts = config_.num_experts;
  const Floats d_prob = RandomFloats(result_.prob.size(), 2);
  const Floats d_scores = RandomFloats(result_.scores.size(), 3);
  for (const bool with_scores : {false, true}) {
    // That of one token; others have no part in it.
    const auto loss = [&](const Doubles& logits) {
      double sum = testing::Dot(Probs(logits), d_prob);
      for (int64_t t = 0; with_scores && t < tokens_; ++t) {
        const Doubles s = Scores(&logits[t * experts]);
        const double all = std::accumulate(s.begin(), s.end(), 0.0);
        for (int64_t e = 0; e < experts; ++e) {
          sum += s[e] / all * d_scores[t * experts + e];
        }
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
        3e-6, 2e-5));
  }
}

TEST_P(RouterChoice, GivesTheSameBitsAgain) {
  const Result again = Forward(logits_);
  EXPECT_TRUE(SameBits(again.scores, result_.scores));
  EXPECT_TRUE(SameBits(again.prob, result_.prob));
  EXPECT_EQ(again.index, result_.index);
}

constexpr RouterScore kSoftmax = RouterScore::kSoftmax;
constexpr RouterScore kSigmoid = RouterScore::kSigmoid;

INSTANTIATE_TEST_SUITE_P(
    Cases, RouterChoice,
    ::testing::Values(
        Case{"Sigmoid", 6, Config(8, 2, kSigmoid, true)},
        Case{"SigmoidRaw", 5, Config(13, 4, kSigmoid, false, 2.5f)},
        Case{"SigmoidTopOne", 4, Config(5, 1, kSigmoid, false)},
        Case{"Bias", 6, Config(12, 3, kSigmoid, true, 2.5f), true},
        Case{"BiasOfMany", 2, Config(70, 40, kSigmoid, true), true},
        Case{"Groups", 7, Config(12, 3, kSigmoid, true, 1, 4, 2, 1)},
        Case{"GroupsOfSums", 7, Config(16, 4, kSigmoid, true, 1, 4, 2, 2)},
        Case{"BiasInGroups", 9, Config(16, 3, kSigmoid, true, 2.5f, 4, 2, 2),
             true},
        Case{"SoftmaxInGroups", 7, Config(16, 4, kSoftmax, true, 1, 4, 2, 2)},
        Case{"SoftmaxRawInGroups", 7,
             Config(12, 2, kSoftmax, false, 3, 6, 2, 1)},
        Case{"AllGroups", 4, Config(8, 3, kSigmoid, true, 1, 4, 4, 2)},
        Case{"GroupsOfOne", 4, Config(9, 3, kSigmoid, true, 1, 9, 3, 1)},
        Case{"ManyGroups", 3, Config(80, 5, kSigmoid, false, 1, 40, 4, 2),
             true}),
    [](const auto& info) { return info.param.name; });

TEST(RouterChoiceTest, ABiasMovesChoicesAndNoProbability) {
  const RouterConfig config = Config(3, 1, kSigmoid, false);
  const Floats logits = {2, 1, 0};
  const Floats bias = {0, 0, 1};
  Floats scores = Unwritten(3), prob = Unwritten(1);
  Ints index = {-1}, counts(3, -1), plain = {-1};
  RouterForward(
      {config, 1, logits.data(), scores.data(), index.data(), prob.data(),
       counts.data(), nullptr, bias.data(), plain.data()},
      InlineStream());
  EXPECT_EQ(index[0], 2);
  EXPECT_EQ(plain[0], 0);
  EXPECT_EQ(prob[0], scores[2]);
  EXPECT_FLOAT_EQ(prob[0], 0.5f);
}

TEST(RouterChoiceTest, ScoresThatAllVanishGiveFiniteGradients) {
  const RouterConfig config = Config(4, 2, kSigmoid, true);
  const Floats logits(4, -200.0f);
  Floats scores = Unwritten(4), prob = Unwritten(2), d_logits = Unwritten(4);
  Ints index(2, -1), counts(4, -1);
  RouterForward({config, 1, logits.data(), scores.data(), index.data(),
                 prob.data(), counts.data()},
                InlineStream());
  EXPECT_EQ(prob, Floats({0, 0}));
  const Floats d_prob = {1, 2}, d_scores = {1, 2, 3, 4};
  RouterBackward({config, 1, scores.data(), index.data(), prob.data(),
                  d_prob.data(), d_scores.data(), d_logits.data()},
                 InlineStream());
  EXPECT_EQ(d_logits, Floats(4));
}

TEST(RouterChoiceTest, BalancedChoicesIgnoreBiasAndGroups) {
  RouterConfig config = Config(8, 2, kSigmoid, true, 1, 4, 2, 1);
  config.balanced = true;
  const Floats logits = RandomFloats(5 * 8, 1);
  Floats scores = Unwritten(40), prob = Unwritten(10);
  Ints index(10, -1), counts(8, -1);
  RouterForward({config, 5, logits.data(), scores.data(), index.data(),
                 prob.data(), counts.data()},
                InlineStream());
  for (int32_t slot = 0; slot < 10; ++slot) EXPECT_EQ(index[slot], slot % 8);
}

}  // namespace
}  // namespace weft::ops
