#include "kernels/ops/cross_entropy/cross_entropy.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Close;
using testing::Doubles;
using testing::Floats;
using testing::Halves;
using testing::InlineStream;
using testing::RandomFloats;
using testing::Rounded;
using testing::SameBits;
using testing::Unwritten;
using testing::Widened;

struct Case {
  int64_t vocab;
  std::vector<int32_t> labels;
};

class CrossEntropy : public ::testing::TestWithParam<Case> {
 protected:
  CrossEntropy() {
    logits_ = RandomFloats(tokens() * c_.vocab, 1, 3.0);
    lse_ = Unwritten(tokens());
    CrossEntropyForward({tokens(), c_.vocab, logits_.data(), c_.labels.data(),
                         lse_.data(), &loss_sum_, &loss_tokens_},
                        InlineStream());
  }

  int64_t tokens() const { return static_cast<int64_t>(c_.labels.size()); }

  Doubles LogSumExps(const Doubles& logits) const {
    Doubles lse;
    for (int64_t t = 0; t < tokens(); ++t) {
      double sum = 0;
      for (int64_t v = 0; v < c_.vocab; ++v) {
        sum += std::exp(logits[t * c_.vocab + v]);
      }
      lse.push_back(std::log(sum));
    }
    return lse;
  }

  double Loss(const Doubles& logits) const {
    const Doubles lse = LogSumExps(logits);
    double loss = 0;
    for (int64_t t = 0; t < tokens(); ++t) {
      if (c_.labels[t] == kIgnoredLabel) continue;
      loss += lse[t] - logits[t * c_.vocab + c_.labels[t]];
    }
    return loss;
  }

  Floats Backward(const float* logits, float scale, Floats d_logits) const {
    CrossEntropyBackward({tokens(), c_.vocab, logits, c_.labels.data(),
                          lse_.data(), scale, d_logits.data()},
                         InlineStream());
    return d_logits;
  }

  const Case c_ = GetParam();
  Floats logits_, lse_;
  double loss_sum_ = -1;
  int64_t loss_tokens_ = -1;
};

TEST_P(CrossEntropy, ForwardMatchesADoubleLoop) {
  const Doubles logits = testing::ToDoubles(logits_);
  EXPECT_TRUE(Close(lse_, LogSumExps(logits), 1e-6, 1e-6));
  EXPECT_NEAR(loss_sum_, Loss(logits), 1e-6 * (1 + std::abs(loss_sum_)));
  int64_t counted = 0;
  for (const int32_t label : c_.labels) counted += label != kIgnoredLabel;
  EXPECT_EQ(loss_tokens_, counted);
}

TEST_P(CrossEntropy, BackwardIsTheGradient) {
  const float scale = 0.25f;
  Doubles expected = testing::NumericGradient(
      [&](const Doubles& v) { return Loss(v); }, testing::ToDoubles(logits_));
  for (double& d : expected) d *= scale;
  const Floats d_logits =
      Backward(logits_.data(), scale, Unwritten(logits_.size()));
  EXPECT_TRUE(Close(d_logits, expected, 1e-7, 1e-5));
  for (int64_t t = 0; t < tokens(); ++t) {
    if (c_.labels[t] != kIgnoredLabel) continue;
    for (int64_t v = 0; v < c_.vocab; ++v) {
      EXPECT_EQ(d_logits[t * c_.vocab + v], 0.0f);
    }
  }
}

TEST_P(CrossEntropy, BackwardInPlaceGivesTheSameBits) {
  Floats in_place = logits_;
  CrossEntropyBackward({tokens(), c_.vocab, in_place.data(), c_.labels.data(),
                        lse_.data(), 0.5f, in_place.data()},
                       InlineStream());
  EXPECT_TRUE(SameBits(
      in_place, Backward(logits_.data(), 0.5f, Unwritten(logits_.size()))));
}

TEST_P(CrossEntropy, Bf16IsTheFp32ResultRounded) {
  const Halves logits = Rounded(logits_);
  const Floats wide = Widened(logits);
  Floats lse = Unwritten(tokens());
  double loss = -1;
  double wide_loss = -2;
  CrossEntropyForward({tokens(), c_.vocab, logits.data(), c_.labels.data(),
                       lse.data(), &loss, nullptr},
                      InlineStream());
  CrossEntropyForward({tokens(), c_.vocab, wide.data(), c_.labels.data(),
                       lse_.data(), &wide_loss, nullptr},
                      InlineStream());
  EXPECT_EQ(loss, wide_loss);
  EXPECT_TRUE(SameBits(lse, lse_));
  Halves d_logits(logits.size());
  CrossEntropyBackward({tokens(), c_.vocab, logits.data(), c_.labels.data(),
                        lse.data(), 0.25f, d_logits.data()},
                       InlineStream());
  EXPECT_TRUE(SameBits(
      d_logits, Rounded(Backward(wide.data(), 0.25f, Unwritten(wide.size())))));
}

TEST_P(CrossEntropy, AWeightIsAFactorOfTheScale) {
  const float weight = 2;
  Floats weighed = Unwritten(logits_.size());
  CrossEntropyBackward({tokens(), c_.vocab, logits_.data(), c_.labels.data(),
                        lse_.data(), 0.25f, weighed.data(), &weight},
                       InlineStream());
  EXPECT_TRUE(SameBits(
      weighed, Backward(logits_.data(), 0.5f, Unwritten(logits_.size()))));
}

INSTANTIATE_TEST_SUITE_P(Cases, CrossEntropy,
                         ::testing::Values(Case{5, {0, 4, 2}},
                                           Case{16, {15, -1, 3, -1}},
                                           Case{1, {0, 0}}, Case{37, {36}},
                                           Case{8, {-1, -1}}, Case{8, {}}));

TEST(CrossEntropyTest, LargeLogitsDoNotOverflow) {
  const Floats logits = {500, -500, 499};
  const std::vector<int32_t> labels = {2};
  Floats lse = Unwritten(1);
  double loss = -1;
  CrossEntropyForward(
      {1, 3, logits.data(), labels.data(), lse.data(), &loss, nullptr},
      InlineStream());
  EXPECT_NEAR(loss, 1 + std::log1p(std::exp(-1.0)), 1e-6);
}

TEST(CrossEntropyTest, AWideVocabularyKeepsItsDigits) {
  constexpr int64_t kVocab = 100003;
  const Floats logits = RandomFloats(kVocab, 1);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  const std::vector<int32_t> labels = {7};
  Floats lse = Unwritten(1);
  double loss = -1;
  CrossEntropyForward(
      {1, kVocab, logits.data(), labels.data(), lse.data(), &loss, nullptr},
      InlineStream());
  EXPECT_NEAR(loss, std::log(sum) - logits[7], 2e-6);
}

}  // namespace
}  // namespace weft::ops
