#include "kernels/ops/attention/attention.h"

#include <cmath>
#include <string>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Close;
using testing::CloseInNorm;
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
  std::string name;
  int64_t batch;
  int64_t seq;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t v_head_dim = 0;

  AttentionShape Shape() const {
    return {batch, seq, heads, kv_heads, head_dim, 0.6f, v_head_dim};
  }
};

// Straight from the definition, one query at a time.
Doubles Reference(const AttentionShape& s, const Doubles& qkv,
                  Doubles* lse = nullptr) {
  Doubles out(s.tokens() * s.out_width());
  if (lse != nullptr) lse->resize(s.tokens() * s.num_heads);
  for (int64_t t = 0; t < s.tokens(); ++t) {
    const int64_t first = t / s.seq * s.seq;
    for (int64_t h = 0; h < s.num_heads; ++h) {
      const int64_t group = h / (s.num_heads / s.num_kv_heads);
      const double* q = &qkv[t * s.qkv_width() + h * s.head_dim];
      const int64_t k_at = (s.num_heads + group) * s.head_dim;
      const int64_t v_at =
          (s.num_heads + s.num_kv_heads) * s.head_dim + group * s.value_dim();
      Doubles p;
      double sum = 0;
      for (int64_t u = first; u <= t; ++u) {
        double score = 0;
        for (int64_t i = 0; i < s.head_dim; ++i) {
          score += q[i] * qkv[u * s.qkv_width() + k_at + i];
        }
        p.push_back(std::exp(score * static_cast<double>(s.scale)));
        sum += p.back();
      }
      if (lse != nullptr) (*lse)[t * s.num_heads + h] = std::log(sum);
      for (int64_t i = 0; i < s.value_dim(); ++i) {
        double value = 0;
        for (int64_t u = first; u <= t; ++u) {
          value += p[u - first] * qkv[u * s.qkv_width() + v_at + i];
        }
        out[t * s.out_width() + h * s.value_dim() + i] = value / sum;
      }
    }
  }
  return out;
}

// d loss / d qkv of loss = sum(out * d_out), straight from the definition.
Doubles ReferenceGradient(const AttentionShape& s, const Doubles& qkv,
                          const Doubles& d_out) {
  Doubles d_qkv(qkv.size());
  Doubles lse;
  const Doubles out = Reference(s, qkv, &lse);
  const int64_t d = s.head_dim;
  const int64_t dv = s.value_dim();
  for (int64_t t = 0; t < s.tokens(); ++t) {
    for (int64_t h = 0; h < s.num_heads; ++h) {
      const int64_t group = h / (s.num_heads / s.num_kv_heads);
      const int64_t q_at = t * s.qkv_width() + h * d;
      const double* dy = &d_out[t * s.out_width() + h * dv];
      const double* y = &out[t * s.out_width() + h * dv];
      for (int64_t u = t / s.seq * s.seq; u <= t; ++u) {
        const int64_t k_at = u * s.qkv_width() + (s.num_heads + group) * d;
        const int64_t v_at =
            u * s.qkv_width() + (s.num_heads + s.num_kv_heads) * d + group * dv;
        double score = 0;
        double d_p = 0;
        for (int64_t i = 0; i < d; ++i) {
          score += qkv[q_at + i] * qkv[k_at + i];
        }
        for (int64_t i = 0; i < dv; ++i) {
          d_p += dy[i] * (qkv[v_at + i] - y[i]);
        }
        const double p = std::exp(score * static_cast<double>(s.scale) -
                                  lse[t * s.num_heads + h]);
        const double ds = p * d_p * static_cast<double>(s.scale);
        for (int64_t i = 0; i < d; ++i) {
          d_qkv[q_at + i] += ds * qkv[k_at + i];
          d_qkv[k_at + i] += ds * qkv[q_at + i];
        }
        for (int64_t i = 0; i < dv; ++i) d_qkv[v_at + i] += p * dy[i];
      }
    }
  }
  return d_qkv;
}

class Attention : public ::testing::TestWithParam<Case> {
 protected:
  Attention() {
    qkv_ = RandomFloats(s_.tokens() * s_.qkv_width(), 1);
    d_out_ = RandomFloats(s_.tokens() * s_.out_width(), 2);
    out_ = Unwritten(s_.tokens() * s_.out_width());
    lse_ = Unwritten(s_.tokens() * s_.num_heads);
    Floats scratch = Unwritten(AttentionForwardScratchElements(s_));
    AttentionForward(
        {s_, qkv_.data(), out_.data(), lse_.data(), scratch.data()},
        InlineStream());
  }

  Floats Backward() {
    Floats d_qkv = Unwritten(qkv_.size());
    Floats scratch = Unwritten(AttentionBackwardScratchElements(s_));
    AttentionBackward({s_, qkv_.data(), out_.data(), lse_.data(), d_out_.data(),
                       d_qkv.data(), scratch.data()},
                      InlineStream());
    return d_qkv;
  }

  const AttentionShape s_ = GetParam().Shape();
  Floats qkv_, d_out_, out_, lse_;
};

TEST_P(Attention, ForwardMatchesADoubleLoop) {
  Doubles lse;
  const Doubles out = Reference(s_, testing::ToDoubles(qkv_), &lse);
  EXPECT_TRUE(Close(out_, out, 2e-6, 2e-6));
  EXPECT_TRUE(Close(lse_, lse, 2e-6, 1e-6));
}

TEST_P(Attention, BackwardIsTheGradient) {
  EXPECT_TRUE(Close(Backward(),
                    ReferenceGradient(s_, testing::ToDoubles(qkv_),
                                      testing::ToDoubles(d_out_)),
                    1e-5, 1e-5));
}

TEST_P(Attention, RepeatsToTheBit) {
  Floats out = Unwritten(out_.size());
  Floats lse = Unwritten(lse_.size());
  Floats scratch = RandomFloats(AttentionForwardScratchElements(s_), 9);
  AttentionForward({s_, qkv_.data(), out.data(), lse.data(), scratch.data()},
                   InlineStream());
  EXPECT_TRUE(SameBits(out, out_));
  EXPECT_TRUE(SameBits(lse, lse_));
  EXPECT_TRUE(SameBits(Backward(), Backward()));
}

// What a call in bf16 gives is what one in fp32 gives, rounded.
TEST_P(Attention, Bf16IsTheFp32ResultRounded) {
  const Halves qkv = Rounded(qkv_);
  const Halves d_out = Rounded(d_out_);
  Halves out(out_.size());
  Halves d_qkv(qkv.size());
  Floats lse = Unwritten(lse_.size());
  Floats scratch = Unwritten(AttentionBackwardScratchElements(s_));
  AttentionForward({s_, qkv.data(), out.data(), lse.data(), scratch.data()},
                   InlineStream());
  AttentionBackward({s_, qkv.data(), out.data(), lse.data(), d_out.data(),
                     d_qkv.data(), scratch.data()},
                    InlineStream());

  qkv_ = Widened(qkv);
  d_out_ = Widened(d_out);
  AttentionForward({s_, qkv_.data(), out_.data(), lse_.data(), scratch.data()},
                   InlineStream());
  EXPECT_TRUE(SameBits(out, Rounded(out_)));
  EXPECT_TRUE(SameBits(lse, lse_));
  out_ = Widened(out);
  EXPECT_TRUE(SameBits(d_qkv, Rounded(Backward())));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Attention,
    ::testing::Values(
        Case{"Grouped", 2, 9, 4, 2, 8}, Case{"OneKeyHead", 1, 17, 4, 1, 5},
        Case{"AsManyKeyHeads", 2, 6, 3, 3, 4}, Case{"OneToken", 3, 1, 2, 1, 4},
        Case{"ExactlyOneBlock", 1, 64, 2, 1, 2},
        Case{"OneOverABlock", 1, 65, 1, 1, 2},
        Case{"SeveralBlocks", 1, 133, 2, 1, 2}, Case{"Empty", 0, 8, 2, 1, 4},
        Case{"NarrowValues", 2, 9, 4, 2, 8, 3},
        Case{"WideValues", 1, 67, 3, 3, 5, 12}),
    [](const auto& info) { return info.param.name; });

// Columns [from, to) of rows of `width`.
template <typename T>
T Columns(const T& rows, int64_t width, int64_t from, int64_t to) {
  T columns;
  for (size_t row = 0; row < rows.size(); row += width) {
    columns.insert(columns.end(), rows.begin() + row + from,
                   rows.begin() + row + to);
  }
  return columns;
}

// Head sizes as models have them, and sequences of several tiles.
class AttentionSizes : public ::testing::TestWithParam<Case> {
 protected:
  static AttentionShape ShapeOf(const Case& c) {
    AttentionShape s = c.Shape();
    s.scale = 1 / std::sqrt(static_cast<float>(s.head_dim));
    return s;
  }

  // `bound` is of the error's norm, relative; of q, k and v apart.
  void ExpectGradient(const Floats& d_qkv, const Doubles& expected,
                      double bound) {
    const int64_t width = s_.qkv_width();
    const int64_t k = s_.key_column();
    const int64_t v = s_.value_column();
    EXPECT_TRUE(CloseInNorm(Columns(d_qkv, width, 0, k),
                            Columns(expected, width, 0, k), bound));
    EXPECT_TRUE(CloseInNorm(Columns(d_qkv, width, k, v),
                            Columns(expected, width, k, v), bound));
    EXPECT_TRUE(CloseInNorm(Columns(d_qkv, width, v, width),
                            Columns(expected, width, v, width), bound));
  }

  const AttentionShape s_ = ShapeOf(GetParam());
  const Halves qkv_ = Rounded(RandomFloats(s_.tokens() * s_.qkv_width(), 1));
  const Halves d_out_ = Rounded(RandomFloats(s_.tokens() * s_.out_width(), 2));
  Floats scratch_ = Unwritten(AttentionBackwardScratchElements(s_));
  Floats lse_ = Unwritten(s_.tokens() * s_.num_heads);
};

TEST_P(AttentionSizes, Fp32MatchesDoubles) {
  const Floats qkv = Widened(qkv_);
  const Floats d_out = Widened(d_out_);
  Floats out = Unwritten(d_out.size());
  Floats d_qkv = Unwritten(qkv.size());
  AttentionForward({s_, qkv.data(), out.data(), lse_.data(), scratch_.data()},
                   InlineStream());
  AttentionBackward({s_, qkv.data(), out.data(), lse_.data(), d_out.data(),
                     d_qkv.data(), scratch_.data()},
                    InlineStream());
  const Doubles x = testing::ToDoubles(qkv);
  Doubles lse;
  EXPECT_TRUE(Close(out, Reference(s_, x, &lse), 4e-6, 4e-6));
  EXPECT_TRUE(Close(lse_, lse, 4e-6, 1e-6));
  const Doubles expected = ReferenceGradient(s_, x, testing::ToDoubles(d_out));
  EXPECT_TRUE(Close(d_qkv, expected, 2e-5, 2e-5));
  ExpectGradient(d_qkv, expected, 2e-6);
}

// Where tensor cores multiply, probabilities and what comes from them are
// rounded to bf16, too.
TEST_P(AttentionSizes, Bf16IsCloseToDoubles) {
  const Halves unwritten = Rounded(Unwritten(qkv_.size()));
  Halves out(unwritten.begin(), unwritten.begin() + d_out_.size());
  Halves d_qkv = unwritten;
  AttentionForward({s_, qkv_.data(), out.data(), lse_.data(), scratch_.data()},
                   InlineStream());
  AttentionBackward({s_, qkv_.data(), out.data(), lse_.data(), d_out_.data(),
                     d_qkv.data(), scratch_.data()},
                    InlineStream());
  const Doubles x = testing::ToDoubles(Widened(qkv_));
  Doubles lse;
  const Doubles expected = Reference(s_, x, &lse);
  EXPECT_TRUE(CloseInNorm(Widened(out), expected, 4e-3));
  EXPECT_TRUE(Close(Widened(out), expected, 1.5e-2, 1.5e-2));
  EXPECT_TRUE(Close(lse_, lse, 1e-4, 1e-5));
  ExpectGradient(Widened(d_qkv),
                 ReferenceGradient(s_, x, testing::ToDoubles(Widened(d_out_))),
                 8e-3);
}

TEST_P(AttentionSizes, Bf16RepeatsToTheBit) {
  Halves out[2];
  Halves d_qkv[2];
  Floats lse[2];
  for (int run = 0; run < 2; ++run) {
    out[run].resize(d_out_.size());
    d_qkv[run].resize(qkv_.size());
    lse[run] = Unwritten(lse_.size());
    AttentionForward(
        {s_, qkv_.data(), out[run].data(), lse[run].data(), scratch_.data()},
        InlineStream());
    AttentionBackward({s_, qkv_.data(), out[run].data(), lse[run].data(),
                       d_out_.data(), d_qkv[run].data(), scratch_.data()},
                      InlineStream());
  }
  EXPECT_TRUE(SameBits(out[0], out[1]));
  EXPECT_TRUE(SameBits(lse[0], lse[1]));
  EXPECT_TRUE(SameBits(d_qkv[0], d_qkv[1]));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, AttentionSizes,
    ::testing::Values(Case{"Heads16", 2, 200, 6, 2, 16},
                      Case{"Heads40Odd", 1, 131, 3, 1, 40},
                      Case{"Heads64", 2, 128, 4, 2, 64},
                      Case{"Heads64Odd", 1, 77, 2, 1, 64},
                      Case{"Heads96", 1, 150, 2, 2, 96},
                      Case{"Heads128Odd", 1, 130, 4, 2, 128},
                      Case{"Heads128", 1, 256, 2, 1, 128},
                      Case{"Heads128AsManyKeyHeads", 1, 128, 2, 2, 128},
                      Case{"Heads256", 1, 100, 2, 1, 256},
                      Case{"Heads192Values128", 1, 130, 2, 2, 192, 128},
                      Case{"Heads64Values96", 1, 128, 2, 1, 64, 96}),
    [](const auto& info) { return info.param.name; });

// The gradient that others are compared with.
TEST(AttentionTest, ReferenceGradientIsTheGradient) {
  for (const int64_t v_head_dim : {0, 5}) {
    const AttentionShape s = {2, 9, 4, 2, 8, 0.6f, v_head_dim};
    const Doubles qkv =
        testing::ToDoubles(RandomFloats(s.tokens() * s.qkv_width(), 1));
    const Floats d_out = RandomFloats(s.tokens() * s.out_width(), 2);
    const Doubles expected = testing::NumericGradient(
        [&](const Doubles& x) { return testing::Dot(Reference(s, x), d_out); },
        qkv, 1e-4);
    const Doubles actual = ReferenceGradient(s, qkv, testing::ToDoubles(d_out));
    EXPECT_TRUE(
        Close(Floats(actual.begin(), actual.end()), expected, 1e-6, 1e-6));
  }
}

TEST(AttentionTest, DoesNotReadTheFuture) {
  const AttentionShape s = {1, 70, 1, 1, 4, 0.5f};
  Floats qkv = RandomFloats(s.tokens() * s.qkv_width(), 1);
  Floats scratch(AttentionForwardScratchElements(s));
  Floats lse(s.tokens());
  Floats before(s.tokens() * s.out_width());
  AttentionForward({s, qkv.data(), before.data(), lse.data(), scratch.data()},
                   InlineStream());
  for (int64_t i = 66 * s.qkv_width(); i < 70 * s.qkv_width(); ++i) {
    qkv[i] = 3.0f;
  }
  Floats after(s.tokens() * s.out_width());
  AttentionForward({s, qkv.data(), after.data(), lse.data(), scratch.data()},
                   InlineStream());
  const int64_t same = 66 * s.out_width();
  EXPECT_TRUE(SameBits(Floats(before.begin(), before.begin() + same),
                       Floats(after.begin(), after.begin() + same)));
}

TEST(AttentionTest, ASequenceDoesNotDependOnTheBatch) {
  const AttentionShape two = {2, 70, 2, 1, 4, 0.5f};
  AttentionShape one = two;
  one.batch = 1;
  const Floats qkv = RandomFloats(two.tokens() * two.qkv_width(), 1);
  Floats scratch(AttentionForwardScratchElements(two));
  Floats lse(two.tokens() * two.num_heads);
  Floats both(two.tokens() * two.out_width());
  AttentionForward({two, qkv.data(), both.data(), lse.data(), scratch.data()},
                   InlineStream());
  Floats second(one.tokens() * one.out_width());
  AttentionForward({one, qkv.data() + one.tokens() * one.qkv_width(),
                    second.data(), lse.data(), scratch.data()},
                   InlineStream());
  EXPECT_TRUE(
      SameBits(second, Floats(both.begin() + second.size(), both.end())));
}

TEST(AttentionTest, LargeScoresDoNotOverflow) {
  const AttentionShape s = {1, 3, 1, 1, 1, 1.0f};
  // Scores of query 2: 900, -900, 0.
  const Floats qkv = {0, 30, 1, 0, -30, 2, 30, 0, 3};
  Floats out = Unwritten(3);
  Floats lse = Unwritten(3);
  Floats scratch(AttentionForwardScratchElements(s));
  AttentionForward({s, qkv.data(), out.data(), lse.data(), scratch.data()},
                   InlineStream());
  EXPECT_EQ(out[2], 1.0f);
  EXPECT_EQ(lse[2], 900.0f);
}

}  // namespace
}  // namespace weft::ops
