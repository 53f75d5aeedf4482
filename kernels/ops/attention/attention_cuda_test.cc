// What only a GPU does: sizes whose backward goes through cuDNN in parts.
#include <cmath>
#include <string>

#include "gtest/gtest.h"
#include "kernels/ops/attention/attention.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::CloseInNorm;
using testing::Floats;
using testing::Halves;
using testing::InlineStream;
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
  int64_t kv_heads;
  int64_t head_dim;
};

class LongAttention : public ::testing::TestWithParam<Case> {
 protected:
  static AttentionShape ShapeOf(const Case& c) {
    return {c.batch,    c.seq,
            c.heads,    c.kv_heads,
            c.head_dim, 1 / std::sqrt(static_cast<float>(c.head_dim))};
  }

  // Into NaN.
  template <typename Values>
  void Run(const Values& qkv, const Values& d_out, Values& out, Floats& lse,
           Values& d_qkv) {
    lse = Unwritten(s_.tokens() * s_.num_heads);
    AttentionForward({s_, qkv.data(), out.data(), lse.data(), nullptr},
                     InlineStream());
    AttentionBackward({s_, qkv.data(), out.data(), lse.data(), d_out.data(),
                       d_qkv.data(), nullptr},
                      InlineStream());
  }

  const AttentionShape s_ = ShapeOf(GetParam());
  const Halves qkv_ =
      Rounded(testing::RandomFloats(s_.tokens() * s_.qkv_width(), 1));
  const Halves d_out_ =
      Rounded(testing::RandomFloats(s_.tokens() * s_.out_width(), 2));
};

TEST_P(LongAttention, Bf16IsCloseToFp32AndRepeats) {
  const Halves unwritten = Rounded(Unwritten(qkv_.size()));
  Halves out(unwritten.begin(), unwritten.begin() + d_out_.size());
  Halves d_qkv = unwritten;
  Floats lse;
  Run(qkv_, d_out_, out, lse, d_qkv);
  {
    Halves out_again(out.size());
    Halves d_qkv_again(d_qkv.size());
    Floats lse_again;
    Run(qkv_, d_out_, out_again, lse_again, d_qkv_again);
    EXPECT_TRUE(SameBits(out, out_again));
    EXPECT_TRUE(SameBits(lse, lse_again));
    EXPECT_TRUE(SameBits(d_qkv, d_qkv_again));
  }
  Floats wide_out = Unwritten(out.size());
  Floats wide_d_qkv = Unwritten(d_qkv.size());
  Floats wide_lse;
  Run(Widened(qkv_), Widened(d_out_), wide_out, wide_lse, wide_d_qkv);
  EXPECT_TRUE(CloseInNorm(Widened(out), ToDoubles(wide_out), 4e-3));
  EXPECT_TRUE(testing::Close(lse, ToDoubles(wide_lse), 1e-4, 1e-5));
  EXPECT_TRUE(CloseInNorm(Widened(d_qkv), ToDoubles(wide_d_qkv), 8e-3));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LongAttention,
    ::testing::Values(Case{"KeyHeadsApart", 1, 4096, 16, 4, 128},
                      Case{"SequencesApart", 3, 4096, 8, 4, 64},
                      Case{"QueryHeadsApart", 1, 8192, 4, 1, 64}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::ops
