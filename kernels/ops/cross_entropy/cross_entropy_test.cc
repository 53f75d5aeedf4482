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
using testing::Ints;
using testing::RandomFloats;
using testing::Rounded;
using testing::SameBits;
using testing::Unwritten;
using testing::Widened;
using Counts = testing::Vector<int64_t>;

struct Case {
  int64_t vocab;
  std::vector<int32_t> labels;
};

class CrossEntropy : public ::testing::TestWithParam<Case> {
 protected:
  CrossEntropy() {
    logits_ = RandomFloats(tokens() * c_.vocab, 1, 3.0);
    lse_ = Unwritten(tokens());
    CrossEntropyForward({tokens(), c_.vocab, logits_.data(), labels_.data(),
                         lse_.data(), loss_sum_.data(), loss_tokens_.data()},
                        InlineStream());
  }

  int64_t tokens() const { return static_cast<int64_t>(labels_.size()); }

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
      if (labels_[t] == kIgnoredLabel) continue;
      loss += lse[t] - logits[t * c_.vocab + labels_[t]];
    }
    return loss;
  }

  Floats Backward(const float* logits, float scale, Floats d_logits) const {
    CrossEntropyBackward({tokens(), c_.vocab, logits, labels_.data(),
                          lse_.data(), scale, d_logits.data()},
                         InlineStream());
    return d_logits;
  }

  const Case c_ = GetParam();
  const Ints labels_ = Ints(c_.labels.begin(), c_.labels.end());
  Floats logits_, lse_;
  Doubles loss_sum_ = Doubles(1, -1);
  Counts loss_tokens_ = Counts(1, -1);
};

TEST_P(CrossEntropy, ForwardMatchesADoubleLoop) {
  const Doubles logits = testing::ToDoubles(logits_);
  EXPECT_TRUE(Close(lse_, LogSumExps(logits), 1e-6, 1e-6));
  EXPECT_NEAR(loss_sum_[0], Loss(logits), 1e-6 * (1 + std::abs(loss_sum_[0])));
  int64_t counted = 0;
  for (const int32_t label : labels_) counted += label != kIgnoredLabel;
  EXPECT_EQ(loss_tokens_[0], counted);
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
    if (labels_[t] != kIgnoredLabel) continue;
    for (int64_t v = 0; v < c_.vocab; ++v) {
      EXPECT_EQ(d_logits[t * c_.vocab + v], 0.0f);
    }
  }
}

TEST_P(CrossEntropy, BackwardInPlaceGivesTheSameBits) {
  Floats in_place = logits_;
  CrossEntropyBackward({tokens(), c_.vocab, in_place.data(), labels_.data(),
                        lse_.data(), 0.5f, in_place.data()},
                       InlineStream());
  EXPECT_TRUE(SameBits(
      in_place, Backward(logits_.data(), 0.5f, Unwritten(logits_.size()))));
}

TEST_P(CrossEntropy, Bf16IsTheFp32ResultRounded) {
  const Halves logits = Rounded(logits_);
  const Floats wide = Widened(logits);
  Floats lse = Unwritten(tokens());
  Doubles loss(1, -1);
  Doubles wide_loss(1, -2);
  CrossEntropyForward({tokens(), c_.vocab, logits.data(), labels_.data(),
                       lse.data(), loss.data(), nullptr},
                      InlineStream());
  CrossEntropyForward({tokens(), c_.vocab, wide.data(), labels_.data(),
                       lse_.data(), wide_loss.data(), nullptr},
                      InlineStream());
  EXPECT_EQ(loss, wide_loss);
  EXPECT_TRUE(SameBits(lse, lse_));
  Halves d_logits(logits.size());
  CrossEntropyBackward({tokens(), c_.vocab, logits.data(), labels_.data(),
                        lse.data(), 0.25f, d_logits.data()},
                       InlineStream());
  EXPECT_TRUE(SameBits(
      d_logits, Rounded(Backward(wide.data(), 0.25f, Unwritten(wide.size())))));
}

TEST_P(CrossEntropy, AWeightIsAFactorOfTheScale) {
  const Floats weight = {2};
  Floats weighed = Unwritten(logits_.size());
  CrossEntropyBackward({tokens(), c_.vocab, logits_.data(), labels_.data(),
                        lse_.data(), 0.25f, weighed.data(), weight.data()},
                       InlineStream());
  EXPECT_TRUE(SameBits(
      weighed, Backward(logits_.data(), 0.5f, Unwritten(logits_.size()))));
}

INSTANTIATE_TEST_SUITE_P(Cases, CrossEntropy,
                         ::testing::Values(Case{5, {0, 4, 2}},
                                           Case{16, {15, -1, 3, -1}},
                                           Case{1, {0, 0}}, Case{37, {36}},
                                           Case{8, {-1, -1}}, Case{8, {}}));

struct Size {
  int64_t tokens;
  int64_t vocab;
};

template <typename V>
struct Outputs {
  Floats lse;
  Doubles loss;
  Counts loss_tokens;
  V d_logits;
};

constexpr float kScale = 0.25f;

class CrossEntropyAtSize : public ::testing::TestWithParam<Size> {
 protected:
  // Forward and backward on logits `offset` elements behind an aligned
  // address.
  template <typename V>
  Outputs<V> Run(const V& values, int64_t offset) const {
    const V logits = testing::Displaced(values, offset);
    V d_logits = testing::UnwrittenOf<V>(logits.size());
    Outputs<V> out = {Unwritten(s_.tokens), Doubles(1, -1), Counts(1, -1), {}};
    CrossEntropyForward(
        {s_.tokens, s_.vocab, logits.data() + offset, labels_.data(),
         out.lse.data(), out.loss.data(), out.loss_tokens.data()},
        InlineStream());
    CrossEntropyBackward(
        {s_.tokens, s_.vocab, logits.data() + offset, labels_.data(),
         out.lse.data(), kScale, d_logits.data() + offset},
        InlineStream());
    out.d_logits = testing::Behind(d_logits, offset);
    return out;
  }

  // Every third token is ignored.
  Ints Labels() const {
    Ints labels(s_.tokens);
    for (int64_t t = 0; t < s_.tokens; ++t) {
      labels[t] = t % 3 == 1 ? kIgnoredLabel : t * 7919 % s_.vocab;
    }
    return labels;
  }

  const Size s_ = {testing::MoreOnGpu(GetParam().tokens), GetParam().vocab};
  const Floats logits_ = RandomFloats(s_.tokens * s_.vocab, 1, 3.0);
  const Ints labels_ = Labels();
};

TEST_P(CrossEntropyAtSize, MatchesADoubleLoop) {
  const Outputs<Floats> out = Run(logits_, 0);
  Doubles lse(s_.tokens);
  Doubles d_logits(logits_.size());
  double loss = 0;
  int64_t loss_tokens = 0;
  for (int64_t t = 0; t < s_.tokens; ++t) {
    const float* row = logits_.data() + t * s_.vocab;
    double sum = 0;
    for (int64_t v = 0; v < s_.vocab; ++v) {
      sum += std::exp(static_cast<double>(row[v]));
    }
    lse[t] = std::log(sum);
    if (labels_[t] == kIgnoredLabel) continue;
    loss += lse[t] - row[labels_[t]];
    ++loss_tokens;
    for (int64_t v = 0; v < s_.vocab; ++v) {
      const double p = std::exp(row[v] - lse[t]);
      d_logits[t * s_.vocab + v] = kScale * (p - (v == labels_[t]));
    }
  }
  EXPECT_TRUE(Close(out.lse, lse, 5e-6, 0));
  EXPECT_NEAR(out.loss[0], loss, 5e-6 * loss_tokens);
  EXPECT_EQ(out.loss_tokens[0], loss_tokens);
  EXPECT_TRUE(Close(out.d_logits, d_logits, 1e-8, 5e-6));
}

TEST_P(CrossEntropyAtSize, BitsDependOnValuesAlone) {
  const Halves narrow = Rounded(logits_);
  const Outputs<Floats> expected = Run(Widened(narrow), 0);
  for (const int64_t offset : {0, 1}) {
    const Outputs<Floats> again = Run(Widened(narrow), offset);
    EXPECT_TRUE(SameBits(again.lse, expected.lse));
    EXPECT_EQ(again.loss, expected.loss);
    EXPECT_TRUE(SameBits(again.d_logits, expected.d_logits));
    const Outputs<Halves> rounded = Run(narrow, offset);
    EXPECT_TRUE(SameBits(rounded.lse, expected.lse));
    EXPECT_EQ(rounded.loss, expected.loss);
    EXPECT_TRUE(SameBits(rounded.d_logits, Rounded(expected.d_logits)));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, CrossEntropyAtSize,
                         ::testing::Values(Size{12, 32000}, Size{4, 50257},
                                           Size{800, 264}));

TEST(CrossEntropyTest, LargeLogitsDoNotOverflow) {
  const Floats logits = {500, -500, 499};
  const Ints labels = {2};
  Floats lse = Unwritten(1);
  Doubles loss(1, -1);
  CrossEntropyForward(
      {1, 3, logits.data(), labels.data(), lse.data(), loss.data(), nullptr},
      InlineStream());
  EXPECT_NEAR(loss[0], 1 + std::log1p(std::exp(-1.0)), 1e-6);
}

TEST(CrossEntropyTest, AWideVocabularyKeepsItsDigits) {
  constexpr int64_t kVocab = 100003;
  const Floats logits = RandomFloats(kVocab, 1);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  const Ints labels = {7};
  Floats lse = Unwritten(1);
  Doubles loss(1, -1);
  CrossEntropyForward({1, kVocab, logits.data(), labels.data(), lse.data(),
                       loss.data(), nullptr},
                      InlineStream());
  EXPECT_NEAR(loss[0], std::log(sum) - logits[7], 2e-6);
}

}  // namespace
}  // namespace weft::ops
