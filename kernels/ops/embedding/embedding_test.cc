#include "kernels/ops/embedding/embedding.h"

#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Floats;
using testing::Halves;
using testing::InlineStream;
using testing::RandomFloats;
using testing::RandomHalves;
using testing::Rounded;
using testing::SameBits;
using testing::Unwritten;
using testing::Widened;

using Ints = std::vector<int32_t>;

struct Case {
  int64_t vocab;
  int64_t hidden;
  Ints ids;
};

class Embedding : public ::testing::TestWithParam<Case> {
 protected:
  int64_t tokens() const { return static_cast<int64_t>(c_.ids.size()); }

  Floats Backward(const Floats& d_out, Floats initial, bool accumulate) const {
    Ints scratch(EmbeddingBackwardScratchElements(tokens(), c_.vocab), -7);
    EmbeddingBackward(
        {tokens(), c_.vocab, c_.hidden, c_.ids.data(), d_out.data(),
         initial.data(), accumulate, scratch.data()},
        InlineStream());
    return initial;
  }

  const Case c_ = GetParam();
};

TEST_P(Embedding, ForwardLooksUpRows) {
  const Floats table = RandomFloats(c_.vocab * c_.hidden, 1);
  Floats out = Unwritten(tokens() * c_.hidden);
  EmbeddingForward(
      {tokens(), c_.vocab, c_.hidden, c_.ids.data(), table.data(), out.data()},
      InlineStream());
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i], table[c_.ids[i / c_.hidden] * c_.hidden + i % c_.hidden]);
  }
}

TEST_P(Embedding, BackwardAddsTokensInOrder) {
  const Floats d_out = RandomFloats(tokens() * c_.hidden, 2);
  Floats expected(c_.vocab * c_.hidden);
  std::vector<bool> seen(c_.vocab);
  for (int64_t t = 0; t < tokens(); ++t) {
    for (int64_t i = 0; i < c_.hidden; ++i) {
      float& sum = expected[c_.ids[t] * c_.hidden + i];
      const float d = d_out[t * c_.hidden + i];
      sum = seen[c_.ids[t]] ? sum + d : d;
    }
    seen[c_.ids[t]] = true;
  }
  const Floats once = Backward(d_out, Unwritten(expected.size()), false);
  EXPECT_TRUE(SameBits(once, expected));

  const Floats initial = RandomFloats(expected.size(), 3);
  Floats sum = initial;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += expected[i];
  EXPECT_TRUE(SameBits(Backward(d_out, initial, true), sum));
}

TEST_P(Embedding, Bf16IsTheFp32ResultRounded) {
  const Halves table = RandomHalves(c_.vocab * c_.hidden, 1);
  Halves out(tokens() * c_.hidden);
  EmbeddingForward(
      {tokens(), c_.vocab, c_.hidden, c_.ids.data(), table.data(), out.data()},
      InlineStream());
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t row = c_.ids[i / c_.hidden];
    EXPECT_EQ(out[i].bits, table[row * c_.hidden + i % c_.hidden].bits);
  }
  const Halves d_out = RandomHalves(tokens() * c_.hidden, 2);
  const Floats wide =
      Backward(Widened(d_out), Unwritten(c_.vocab * c_.hidden), false);
  Halves d_table(wide.size());
  Ints scratch(EmbeddingBackwardScratchElements(tokens(), c_.vocab), -7);
  EmbeddingBackward({tokens(), c_.vocab, c_.hidden, c_.ids.data(), d_out.data(),
                     d_table.data(), false, scratch.data()},
                    InlineStream());
  EXPECT_TRUE(SameBits(d_table, Rounded(wide)));
}

INSTANTIATE_TEST_SUITE_P(Cases, Embedding,
                         ::testing::Values(Case{6, 3, {5, 0, 5, 2, 5, 0}},
                                           Case{4, 300, {1, 1, 1}},
                                           Case{3, 8, {2}}, Case{3, 8, {}},
                                           Case{1, 2, {0, 0, 0, 0, 0}}));

}  // namespace
}  // namespace weft::ops
