#include "kernels/ops/embedding/embedding.h"

#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Floats;
using testing::Halves;
using testing::InlineStream;
using testing::Ints;
using testing::RandomFloats;
using testing::RandomHalves;
using testing::Rounded;
using testing::SameBits;
using testing::Unwritten;
using testing::Widened;

struct Case {
  int64_t vocab;
  int64_t hidden;
  std::vector<int32_t> ids;
};

// Ids of which low ones are frequent, as in text.
std::vector<int32_t> RandomIds(int64_t tokens, int64_t vocab) {
  std::mt19937_64 generator(1);
  std::uniform_real_distribution<double> uniform;
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < tokens; ++t) {
    ids.push_back(static_cast<int32_t>(std::pow(vocab, uniform(generator))) -
                  1);
  }
  return ids;
}

class Embedding : public ::testing::TestWithParam<Case> {
 protected:
  int64_t tokens() const { return static_cast<int64_t>(ids_.size()); }

  // Each array begins `offset` elements behind an aligned address.
  template <typename V, typename Table>
  Table Backward(const V& d_out, const Table& initial, bool accumulate,
                 int64_t offset = 0) const {
    Ints scratch(EmbeddingBackwardScratchElements(tokens(), c_.vocab), -7);
    const V from = testing::Displaced(d_out, offset);
    Table table = testing::Displaced(initial, offset);
    EmbeddingBackward(
        {tokens(), c_.vocab, c_.hidden, ids_.data(), from.data() + offset,
         table.data() + offset, accumulate, scratch.data()},
        InlineStream());
    return testing::Behind(table, offset);
  }

  Ints Ids() const {
    Ints ids;
    for (int64_t i = 0; i < testing::MoreOnGpu(1); ++i) {
      ids.insert(ids.end(), c_.ids.begin(), c_.ids.end());
    }
    return ids;
  }

  const Case c_ = GetParam();
  const Ints ids_ = Ids();
};

TEST_P(Embedding, ForwardLooksUpRows) {
  const Floats table = RandomFloats(c_.vocab * c_.hidden, 1);
  Floats out = Unwritten(tokens() * c_.hidden);
  EmbeddingForward(
      {tokens(), c_.vocab, c_.hidden, ids_.data(), table.data(), out.data()},
      InlineStream());
  Floats expected(out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    expected[i] = table[ids_[i / c_.hidden] * c_.hidden + i % c_.hidden];
  }
  EXPECT_TRUE(SameBits(out, expected));
}

TEST_P(Embedding, BackwardAddsTokensInOrder) {
  const Floats d_out = RandomFloats(tokens() * c_.hidden, 2);
  Floats expected(c_.vocab * c_.hidden);
  std::vector<bool> seen(c_.vocab);
  for (int64_t t = 0; t < tokens(); ++t) {
    for (int64_t i = 0; i < c_.hidden; ++i) {
      float& sum = expected[ids_[t] * c_.hidden + i];
      const float d = d_out[t * c_.hidden + i];
      sum = seen[ids_[t]] ? sum + d : d;
    }
    seen[ids_[t]] = true;
  }
  for (const int64_t offset : {0, 1}) {
    EXPECT_TRUE(SameBits(
        Backward(d_out, Unwritten(expected.size()), false, offset), expected));
  }

  const Floats initial = RandomFloats(expected.size(), 3);
  Floats sum = initial;
  for (size_t i = 0; i < sum.size(); ++i) {
    if (seen[i / c_.hidden]) sum[i] += expected[i];
  }
  EXPECT_TRUE(SameBits(Backward(d_out, initial, true), sum));
}

TEST_P(Embedding, ARowCanBeLeftUntrained) {
  if (ids_.empty()) return;
  const int64_t id = ids_[ids_.size() / 2];
  const Floats d_out = RandomFloats(tokens() * c_.hidden, 2);
  const Floats initial = RandomFloats(c_.vocab * c_.hidden, 3);
  for (const bool accumulate : {false, true}) {
    Floats expected = Backward(d_out, initial, accumulate);
    for (int64_t i = id * c_.hidden; i < (id + 1) * c_.hidden; ++i) {
      expected[i] = accumulate ? initial[i] : 0;
    }
    Ints scratch(EmbeddingBackwardScratchElements(tokens(), c_.vocab));
    Floats d_table = accumulate ? initial : Unwritten(initial.size());
    EmbeddingBackward({tokens(), c_.vocab, c_.hidden, ids_.data(), d_out.data(),
                       d_table.data(), accumulate, scratch.data(), 1.0f, id},
                      InlineStream());
    EXPECT_TRUE(SameBits(d_table, expected)) << accumulate;
  }
}

TEST_P(Embedding, FactorScalesRowsAndSums) {
  const Floats table = RandomFloats(c_.vocab * c_.hidden, 1);
  const Floats d_out = RandomFloats(tokens() * c_.hidden, 2);
  Floats rows = Unwritten(d_out.size());
  EmbeddingForward({tokens(), c_.vocab, c_.hidden, ids_.data(), table.data(),
                    rows.data(), 1.7f},
                   InlineStream());
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t from = ids_[i / c_.hidden] * c_.hidden + i % c_.hidden;
    ASSERT_EQ(rows[i], 1.7f * table[from]) << i;
  }

  Floats expected = Backward(d_out, Unwritten(table.size()), false);
  for (float& sum : expected) sum *= 1.7f;
  Ints scratch(EmbeddingBackwardScratchElements(tokens(), c_.vocab));
  Floats d_table = Unwritten(table.size());
  EmbeddingBackward({tokens(), c_.vocab, c_.hidden, ids_.data(), d_out.data(),
                     d_table.data(), false, scratch.data(), 1.7f},
                    InlineStream());
  EXPECT_TRUE(SameBits(d_table, expected));
}

TEST_P(Embedding, Bf16IsTheFp32ResultRounded) {
  const Halves table = RandomHalves(c_.vocab * c_.hidden, 1);
  Halves out(tokens() * c_.hidden);
  EmbeddingForward(
      {tokens(), c_.vocab, c_.hidden, ids_.data(), table.data(), out.data()},
      InlineStream());
  Halves expected(out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    expected[i] = table[ids_[i / c_.hidden] * c_.hidden + i % c_.hidden];
  }
  EXPECT_TRUE(SameBits(out, expected));

  const Halves d_out = RandomHalves(tokens() * c_.hidden, 2);
  const int64_t elements = c_.vocab * c_.hidden;
  const Floats sums = Backward(Widened(d_out), Unwritten(elements), false);
  const Halves unwritten = testing::UnwrittenOf<Halves>(elements);
  for (const int64_t offset : {0, 1}) {
    EXPECT_TRUE(
        SameBits(Backward(d_out, unwritten, false, offset), Rounded(sums)));
    EXPECT_TRUE(
        SameBits(Backward(d_out, Unwritten(elements), false, offset), sums));
  }
  const Halves initial = RandomHalves(elements, 3);
  const Halves apart = Rounded(sums);
  Floats sum = Widened(initial);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += ToFloat(apart[i]);
  EXPECT_TRUE(SameBits(Backward(d_out, initial, true), Rounded(sum)));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Embedding,
    ::testing::Values(Case{6, 3, {5, 0, 5, 2, 5, 0}}, Case{4, 300, {1, 1, 1}},
                      Case{3, 8, {2}}, Case{3, 8, {}},
                      Case{1, 2, {0, 0, 0, 0, 0}},
                      Case{150, 1032, RandomIds(600, 150)},
                      Case{70000, 8, RandomIds(3000, 70000)},
                      Case{256, 16, RandomIds(6000, 256)}));

}  // namespace
}  // namespace weft::ops
