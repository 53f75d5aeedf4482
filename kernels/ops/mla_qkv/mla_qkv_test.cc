#include "kernels/ops/mla_qkv/mla_qkv.h"

#include <cmath>
#include <string>

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
using testing::ToDoubles;
using testing::Unwritten;
using testing::Widened;

struct Case {
  std::string name;
  int64_t batch;
  int64_t seq;
  int64_t heads;
  int64_t plain_dim;
  int64_t rope_dim;
  int64_t v_dim;
  bool half_split;
};

template <typename V>
struct Gradients {
  V d_q, d_kv, d_k_rope;
};

class MlaQkv : public ::testing::TestWithParam<Case> {
 protected:
  MlaQkv() {
    const Case& c = GetParam();
    for (int64_t i = 0; i < c.seq * c.rope_dim / 2; ++i) {
      cos_.push_back(std::cos(0.3f * i));
      sin_.push_back(std::sin(0.3f * i));
    }
    s_ = {c.batch * c.seq, c.seq,        c.heads,     c.plain_dim, c.rope_dim,
          c.v_dim,         c.half_split, cos_.data(), sin_.data()};
    q_ = RandomFloats(s_.tokens * s_.q_width(), 1);
    kv_ = RandomFloats(s_.tokens * s_.kv_width(), 2);
    k_rope_ = RandomFloats(s_.tokens * s_.rope_dim, 3);
    d_qkv_ = RandomFloats(s_.tokens * s_.qkv_width(), 4);
  }

  template <typename V>
  V Forward(const V& q, const V& kv, const V& k_rope) const {
    V qkv = testing::UnwrittenOf<V>(s_.tokens * s_.qkv_width());
    MlaQkvForward({s_, q.data(), kv.data(), k_rope.data(), qkv.data()},
                  InlineStream());
    return qkv;
  }

  template <typename V>
  Gradients<V> Backward(const V& d_qkv) const {
    Gradients<V> g = {testing::UnwrittenOf<V>(s_.tokens * s_.q_width()),
                      testing::UnwrittenOf<V>(s_.tokens * s_.kv_width()),
                      testing::UnwrittenOf<V>(s_.tokens * s_.rope_dim)};
    MlaQkvBackward(
        {s_, d_qkv.data(), g.d_q.data(), g.d_kv.data(), g.d_k_rope.data()},
        InlineStream());
    return g;
  }

  // rotated(x)[at], the pairs first brought to (i, i + half).
  double Rotated(int64_t token, const double* x, int64_t at) const {
    const int64_t half = s_.rope_dim / 2;
    Doubles split(s_.rope_dim);
    for (int64_t i = 0; i < s_.rope_dim; ++i) {
      const int64_t to = s_.half_split ? i : i / 2 + i % 2 * half;
      split[to] = x[i];
    }
    const int64_t angle = token % s_.seq * half + at % half;
    const double other = at < half ? -split[at + half] : split[at - half];
    return split[at] * cos_[angle] + other * sin_[angle];
  }

  // Straight from the definition, element by element.
  Doubles Reference(const Doubles& q, const Doubles& kv,
                    const Doubles& k_rope) const {
    Doubles qkv;
    const int64_t plain = s_.plain_dim;
    const int64_t kv_dim = plain + s_.v_dim;
    for (int64_t t = 0; t < s_.tokens; ++t) {
      for (int64_t i = 0; i < s_.q_width(); ++i) {
        const int64_t at = i % s_.qk_dim();
        const double* head = &q[t * s_.q_width() + i - at];
        qkv.push_back(at < plain ? head[at]
                                 : Rotated(t, head + plain, at - plain));
      }
      for (int64_t i = 0; i < s_.q_width(); ++i) {
        const int64_t at = i % s_.qk_dim();
        const int64_t head = t * s_.kv_width() + i / s_.qk_dim() * kv_dim;
        qkv.push_back(at < plain
                          ? kv[head + at]
                          : Rotated(t, &k_rope[t * s_.rope_dim], at - plain));
      }
      for (int64_t i = 0; i < s_.heads * s_.v_dim; ++i) {
        const int64_t head = t * s_.kv_width() + i / s_.v_dim * kv_dim;
        qkv.push_back(kv[head + plain + i % s_.v_dim]);
      }
    }
    return qkv;
  }

  Floats cos_, sin_;
  MlaQkvShape s_;
  Floats q_, kv_, k_rope_, d_qkv_;
};

TEST_P(MlaQkv, ForwardMatchesTheDefinition) {
  EXPECT_TRUE(
      Close(Forward(q_, kv_, k_rope_),
            Reference(ToDoubles(q_), ToDoubles(kv_), ToDoubles(k_rope_)), 1e-6,
            1e-6));
}

TEST_P(MlaQkv, BackwardIsTheGradient) {
  const Doubles q = ToDoubles(q_);
  const Doubles kv = ToDoubles(kv_);
  const Doubles k_rope = ToDoubles(k_rope_);
  const Gradients<Floats> g = Backward(d_qkv_);
  const auto loss = [&](const Doubles& a, const Doubles& b, const Doubles& c) {
    return testing::Dot(Reference(a, b, c), d_qkv_);
  };
  EXPECT_TRUE(
      Close(g.d_q,
            testing::NumericGradient(
                [&](const Doubles& x) { return loss(x, kv, k_rope); }, q),
            5e-6, 1e-6));
  EXPECT_TRUE(
      Close(g.d_kv,
            testing::NumericGradient(
                [&](const Doubles& x) { return loss(q, x, k_rope); }, kv),
            5e-6, 1e-6));
  EXPECT_TRUE(
      Close(g.d_k_rope,
            testing::NumericGradient(
                [&](const Doubles& x) { return loss(q, kv, x); }, k_rope),
            5e-6, 1e-6));
}

TEST_P(MlaQkv, Bf16IsTheFp32ResultRounded) {
  const Halves q = Rounded(q_);
  const Halves kv = Rounded(kv_);
  const Halves k_rope = Rounded(k_rope_);
  const Halves d_qkv = Rounded(d_qkv_);
  EXPECT_TRUE(
      SameBits(Forward(q, kv, k_rope),
               Rounded(Forward(Widened(q), Widened(kv), Widened(k_rope)))));
  const Gradients<Halves> narrow = Backward(d_qkv);
  const Gradients<Floats> wide = Backward(Widened(d_qkv));
  EXPECT_TRUE(SameBits(narrow.d_q, Rounded(wide.d_q)));
  EXPECT_TRUE(SameBits(narrow.d_kv, Rounded(wide.d_kv)));
  EXPECT_TRUE(SameBits(narrow.d_k_rope, Rounded(wide.d_k_rope)));
}

TEST_P(MlaQkv, RepeatsToTheBit) {
  EXPECT_TRUE(SameBits(Forward(q_, kv_, k_rope_), Forward(q_, kv_, k_rope_)));
  EXPECT_TRUE(SameBits(Backward(d_qkv_).d_k_rope, Backward(d_qkv_).d_k_rope));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, MlaQkv,
    ::testing::Values(Case{"Interleaved", 2, 3, 3, 4, 6, 5, false},
                      Case{"HalfSplit", 2, 3, 3, 4, 6, 5, true},
                      Case{"OneHead", 1, 5, 1, 1, 2, 1, false},
                      Case{"ManyHeads", 1, 2, 17, 8, 4, 16, false},
                      Case{"NoTokens", 0, 4, 2, 2, 2, 2, true}),
    [](const auto& info) { return info.param.name; });

// What each of the summed heads adds to the shared part's gradient.
TEST(MlaQkvTest, SharedKeyPartSumsOverHeads) {
  const Floats cos = {1};
  const Floats sin = {0};
  const MlaQkvShape s = {1, 1, 3, 1, 2, 1, false, cos.data(), sin.data()};
  Floats d_qkv(s.qkv_width());
  for (int64_t head = 0; head < 3; ++head) {
    d_qkv[s.q_width() + head * s.qk_dim() + 1] = 1.0f + head;
    d_qkv[s.q_width() + head * s.qk_dim() + 2] = 10.0f + head;
  }
  Floats d_q = Unwritten(s.q_width());
  Floats d_kv = Unwritten(s.kv_width());
  Floats d_k_rope = Unwritten(2);
  MlaQkvBackward({s, d_qkv.data(), d_q.data(), d_kv.data(), d_k_rope.data()},
                 InlineStream());
  EXPECT_EQ(d_k_rope, Floats({6, 33}));
}

}  // namespace
}  // namespace weft::ops
