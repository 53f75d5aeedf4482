#include "kernels/ops/permute/permute.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
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
using testing::RandomHalves;
using testing::Rounded;
using testing::SameBits;
using testing::Unwritten;
using testing::Widened;

using Offsets = testing::Vector<int64_t>;

struct Permutation {
  Offsets offsets;
  Ints row_of_slot, slot_of_row, token_of_row, sorted_rows, sorted_experts;
};

Permutation Build(int64_t tokens, int64_t topk, int64_t experts,
                  const Ints& index) {
  const Ints unwritten(tokens * topk, -1);
  Permutation p = {Offsets(experts + 1, -1),
                   unwritten,
                   unwritten,
                   unwritten,
                   unwritten,
                   unwritten};
  BuildPermutation(
      {tokens, topk, experts, index.data(), p.offsets.data(),
       p.row_of_slot.data(), p.slot_of_row.data(), p.token_of_row.data(),
       p.sorted_rows.data(), p.sorted_experts.data()},
      InlineStream());
  return p;
}

// `topk` different experts for each token, in no particular order.
Ints RandomChoices(int64_t tokens, int64_t topk, int64_t experts) {
  std::mt19937 generator(tokens * 100 + topk);
  Ints index;
  Ints all(experts);
  std::iota(all.begin(), all.end(), 0);
  for (int64_t t = 0; t < tokens; ++t) {
    std::shuffle(all.begin(), all.end(), generator);
    index.insert(index.end(), all.begin(), all.begin() + topk);
  }
  return index;
}

struct Case {
  std::string name;
  int64_t tokens;
  int64_t topk;
  int64_t experts;
  int64_t per_rank;
};

class Permute : public ::testing::TestWithParam<Case> {
 protected:
  Permute()
      : index_(RandomChoices(c_.tokens, c_.topk, c_.experts)),
        p_(Build(c_.tokens, c_.topk, c_.experts, index_)) {}

  int64_t slots() const { return c_.tokens * c_.topk; }

  const Case c_ = GetParam();
  const Ints index_;
  const Permutation p_;
};

TEST_P(Permute, RowsAreOrderedByExpertThenToken) {
  std::vector<std::tuple<int32_t, int32_t, int32_t>> order;
  for (int32_t s = 0; s < slots(); ++s) {
    order.emplace_back(index_[s], s / c_.topk, s);
  }
  std::sort(order.begin(), order.end());
  Offsets offsets(c_.experts + 1);
  for (int32_t row = 0; row < slots(); ++row) {
    const auto [expert, token, slot] = order[row];
    ASSERT_EQ(p_.slot_of_row[row], slot) << row;
    ASSERT_EQ(p_.token_of_row[row], token) << row;
    ASSERT_EQ(p_.row_of_slot[slot], row) << slot;
    for (int64_t e = expert + 1; e <= c_.experts; ++e) ++offsets[e];
  }
  EXPECT_EQ(p_.offsets, offsets);
}

TEST_P(Permute, SortedSlotsAscendByExpert) {
  for (int64_t t = 0; t < c_.tokens; ++t) {
    std::map<int32_t, int32_t> row_of_expert;
    for (int64_t j = 0; j < c_.topk; ++j) {
      const int64_t s = t * c_.topk + j;
      row_of_expert[index_[s]] = p_.row_of_slot[s];
    }
    int64_t at = t * c_.topk;
    for (const auto& [expert, row] : row_of_expert) {
      ASSERT_EQ(p_.sorted_experts[at], expert) << at;
      ASSERT_EQ(p_.sorted_rows[at], row) << at;
      ++at;
    }
  }
}

TEST_P(Permute, GathersRowsAndProbabilitiesAndTheirGradients) {
  constexpr int64_t kHidden = 3;
  const Floats x = RandomFloats(c_.tokens * kHidden, 1);
  Floats rows = Unwritten(slots() * kHidden);
  GatherRows({slots(), kHidden, x.data(), p_.token_of_row.data(), rows.data()},
             InlineStream());
  const Floats prob = RandomFloats(slots(), 2);
  Floats prob_rows = Unwritten(slots());
  GatherElements(
      {slots(), prob.data(), p_.slot_of_row.data(), prob_rows.data()},
      InlineStream());
  for (int64_t s = 0; s < slots(); ++s) {
    const int64_t row = p_.row_of_slot[s];
    EXPECT_EQ(prob_rows[row], prob[s]);
    for (int64_t i = 0; i < kHidden; ++i) {
      EXPECT_EQ(rows[row * kHidden + i], x[s / c_.topk * kHidden + i]);
    }
  }
  Floats back = Unwritten(slots());
  GatherElements(
      {slots(), prob_rows.data(), p_.row_of_slot.data(), back.data()},
      InlineStream());
  EXPECT_TRUE(SameBits(back, prob));
}

// Calls add(row, is_first_of_rank) for the rows of a token in the canonical
// order, spelled out with maps.
template <typename Add>
void ForEachRow(const Case& c, const Ints& index, const Permutation& p,
                int64_t token, Add&& add) {
  std::map<int32_t, std::map<int32_t, int32_t>> ranks;
  for (int64_t s = token * c.topk; s < (token + 1) * c.topk; ++s) {
    ranks[index[s] / c.per_rank][index[s]] = p.row_of_slot[s];
  }
  for (const auto& [rank, experts] : ranks) {
    for (const auto& [expert, row] : experts) {
      add(row, expert == experts.begin()->first);
    }
  }
}

// `rounded` tells what a partial sum becomes.
Floats CanonicalSum(
    const Case& c, const Ints& index, const Permutation& p, const Floats& rows,
    int64_t hidden, float (*rounded)(float) = [](float sum) { return sum; }) {
  Floats out(c.tokens * hidden);
  std::vector<std::vector<float>> partials;  // one a rank
  for (int64_t t = 0; t < c.tokens; ++t) {
    partials.clear();
    ForEachRow(c, index, p, t, [&](int64_t row, bool is_first_of_rank) {
      const float* from = rows.data() + row * hidden;
      if (is_first_of_rank) {
        partials.emplace_back(from, from + hidden);
        return;
      }
      for (int64_t i = 0; i < hidden; ++i) partials.back()[i] += from[i];
    });
    for (int64_t i = 0; i < hidden; ++i) {
      float sum = rounded(partials.front()[i]);
      for (size_t r = 1; r < partials.size(); ++r) {
        sum += rounded(partials[r][i]);
      }
      out[t * hidden + i] = sum;
    }
  }
  return out;
}

float RoundedToBf16(float x) { return ToFloat(ToBf16(x)); }

TEST_P(Permute, CombineSumsInTheCanonicalOrder) {
  for (const int64_t hidden : {1, 7, 304}) {
    const Floats rows = RandomFloats(slots() * hidden, 3);
    const Floats add1 = RandomFloats(c_.tokens * hidden, 4);
    const Floats add2 = RandomFloats(c_.tokens * hidden, 5);
    const Floats routed = CanonicalSum(c_, index_, p_, rows, hidden);
    const auto combine = [&](const float* a1, const float* a2) {
      Floats out = Unwritten(c_.tokens * hidden);
      CombineRows(
          {c_.tokens, c_.topk, hidden, c_.per_rank, rows.data(),
           p_.sorted_rows.data(), p_.sorted_experts.data(), a1, a2, out.data()},
          InlineStream());
      return out;
    };
    Floats with_one = routed;
    Floats with_both = routed;
    for (size_t i = 0; i < routed.size(); ++i) {
      with_one[i] = add1[i] + routed[i];
      with_both[i] = (add1[i] + add2[i]) + routed[i];
    }
    EXPECT_TRUE(SameBits(combine(nullptr, nullptr), routed));
    EXPECT_TRUE(SameBits(combine(add1.data(), nullptr), with_one));
    EXPECT_TRUE(SameBits(combine(nullptr, add1.data()), with_one));
    EXPECT_TRUE(SameBits(combine(add1.data(), add2.data()), with_both));

    Floats scaled = routed;
    for (size_t i = 0; i < routed.size(); ++i) {
      const float first = std::fma(0.7f, add2[i], add1[i]);
      scaled[i] = std::fma(0.7f, routed[i], first);
    }
    Floats with_factor = Unwritten(routed.size());
    CombineRows({c_.tokens, c_.topk, hidden, c_.per_rank, rows.data(),
                 p_.sorted_rows.data(), p_.sorted_experts.data(), add1.data(),
                 add2.data(), with_factor.data(), 0.7f},
                InlineStream());
    EXPECT_TRUE(SameBits(with_factor, scaled));

    Floats in_place = add2;
    CombineRows({c_.tokens, c_.topk, hidden, c_.per_rank, rows.data(),
                 p_.sorted_rows.data(), p_.sorted_experts.data(), add1.data(),
                 in_place.data(), in_place.data()},
                InlineStream());
    EXPECT_TRUE(SameBits(in_place, with_both));
  }
}

// GatherRows by token and CombineRows are each other's gradient.
TEST_P(Permute, GatherAndCombineAreAdjoint) {
  constexpr int64_t kHidden = 4;
  const Floats x = RandomFloats(c_.tokens * kHidden, 1);
  const Floats d_rows = RandomFloats(slots() * kHidden, 2);
  Floats rows = Unwritten(slots() * kHidden);
  GatherRows({slots(), kHidden, x.data(), p_.token_of_row.data(), rows.data()},
             InlineStream());
  Floats dx = Unwritten(x.size());
  CombineRows({c_.tokens, c_.topk, kHidden, c_.per_rank, d_rows.data(),
               p_.sorted_rows.data(), p_.sorted_experts.data(), nullptr,
               nullptr, dx.data()},
              InlineStream());
  EXPECT_NEAR(testing::Dot(testing::ToDoubles(rows), d_rows),
              testing::Dot(testing::ToDoubles(x), dx), 1e-4);
}

TEST_P(Permute, Bf16IsTheFp32ResultOfRoundedPartialSumsRounded) {
  for (const int64_t hidden : {1, 7, 304}) {
    const Halves rows = RandomHalves(slots() * hidden, 3);
    const Halves add1 = RandomHalves(c_.tokens * hidden, 4);
    const Halves add2 = RandomHalves(c_.tokens * hidden, 5);
    Floats expected =
        CanonicalSum(c_, index_, p_, Widened(rows), hidden, &RoundedToBf16);
    for (size_t i = 0; i < expected.size(); ++i) {
      expected[i] = (ToFloat(add1[i]) + ToFloat(add2[i])) + expected[i];
    }
    Halves out(c_.tokens * hidden);
    CombineRows({c_.tokens, c_.topk, hidden, c_.per_rank, rows.data(),
                 p_.sorted_rows.data(), p_.sorted_experts.data(), add1.data(),
                 add2.data(), out.data()},
                InlineStream());
    EXPECT_TRUE(SameBits(out, Rounded(expected)));

    Halves gathered(slots() * hidden);
    GatherRows(
        {slots(), hidden, add1.data(), p_.token_of_row.data(), gathered.data()},
        InlineStream());
    for (int64_t i = 0; i < slots() * hidden; ++i) {
      const int64_t token = p_.token_of_row[i / hidden];
      EXPECT_EQ(gathered[i].bits, add1[token * hidden + i % hidden].bits);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Permute,
    ::testing::Values(
        Case{"TwoOfEight", 9, 2, 8, 2}, Case{"FourOfEight", 12, 4, 8, 4},
        Case{"EightOfSixteen", 5, 8, 16, 4}, Case{"AllExperts", 4, 6, 6, 3},
        Case{"OneRank", 6, 3, 6, 6}, Case{"TopOne", 7, 1, 4, 1},
        Case{"OneExpert", 5, 1, 1, 1}, Case{"OneToken", 1, 2, 8, 4},
        Case{"NoToken", 0, 2, 8, 4}, Case{"Large", 701, 4, 32, 16},
        Case{"Experts", 401, 16, 512, 64}, Case{"Most", 11, 70, 2000, 500}),
    [](const auto& info) { return info.param.name; });

// As many tokens as a job routes, one expert never chosen.
TEST(PermuteTest, ManyTokensAreOrderedByExpertThenToken) {
  constexpr int64_t kTokens = 30011;
  constexpr int64_t kTopK = 4;
  constexpr int64_t kExperts = 33;
  const Ints index = RandomChoices(kTokens, kTopK, kExperts - 1);
  const Permutation p = Build(kTokens, kTopK, kExperts, index);
  std::vector<std::vector<int32_t>> slots(kExperts);
  for (int64_t s = 0; s < kTokens * kTopK; ++s) slots[index[s]].push_back(s);
  int64_t row = 0;
  for (int64_t e = 0; e < kExperts; ++e) {
    EXPECT_EQ(p.offsets[e], row);
    for (const int32_t slot : slots[e]) {
      ASSERT_EQ(p.slot_of_row[row], slot) << row;
      ASSERT_EQ(p.token_of_row[row], slot / kTopK) << row;
      ASSERT_EQ(p.row_of_slot[slot], row) << slot;
      ++row;
    }
  }
  EXPECT_EQ(p.offsets[kExperts], row);
}

TEST(PermuteTest, OneExpertGetsEverything) {
  const Permutation p = Build(3, 1, 4, {2, 2, 2});
  EXPECT_EQ(p.offsets, (Offsets{0, 0, 0, 3, 3}));
  EXPECT_EQ(p.row_of_slot, (Ints{0, 1, 2}));
}

// Sums that an order by expert alone would round differently.
TEST(PermuteTest, CombineRoundsPerRankFirst) {
  const float big = 16777216.0f;  // 2^24: adding 1 is lost
  const Permutation p = Build(1, 4, 4, {3, 1, 0, 2});
  const Floats rows = {big, 1, 1, 1};  // experts 0, 1, 2, 3
  Floats out = Unwritten(1);
  CombineRows({1, 4, 1, 2, rows.data(), p.sorted_rows.data(),
               p.sorted_experts.data(), nullptr, nullptr, out.data()},
              InlineStream());
  EXPECT_EQ(out[0], big + 2);  // (big + 1) + (1 + 1)
  CombineRows({1, 4, 1, 4, rows.data(), p.sorted_rows.data(),
               p.sorted_experts.data(), nullptr, nullptr, out.data()},
              InlineStream());
  EXPECT_EQ(out[0], big);  // ((big + 1) + 1) + 1
}

TEST(PermuteTest, PartialSumsOfRanksCombineToTheSameBits) {
  constexpr int64_t kHidden = 5;
  const Permutation p = Build(1, 4, 8, {6, 1, 0, 7});
  const Floats rows = RandomFloats(4 * kHidden, 1);  // experts 0, 1, 6, 7
  Floats whole = Unwritten(kHidden);
  CombineRows({1, 4, kHidden, 4, rows.data(), p.sorted_rows.data(),
               p.sorted_experts.data(), nullptr, nullptr, whole.data()},
              InlineStream());
  Floats partial(2 * kHidden);
  for (int64_t i = 0; i < kHidden; ++i) {
    partial[i] = rows[i] + rows[kHidden + i];
    partial[kHidden + i] = rows[2 * kHidden + i] + rows[3 * kHidden + i];
  }
  const Ints ranks = {0, 1};
  Floats combined = Unwritten(kHidden);
  CombineRows({1, 2, kHidden, 1, partial.data(), ranks.data(), ranks.data(),
               nullptr, nullptr, combined.data()},
              InlineStream());
  EXPECT_TRUE(SameBits(combined, whole));
}

// Rows of a job's size; bf16, so a row is eight columns wider than what the
// columns before it fill.
TEST(PermuteTest, WideRowsAreSummedAndMoved) {
  for (const int64_t hidden : {2048, 4104}) {
    const Case c = {"", 129, 4, 16, 4};
    const Ints index = RandomChoices(c.tokens, c.topk, c.experts);
    const Permutation p = Build(c.tokens, c.topk, c.experts, index);
    const int64_t slots = c.tokens * c.topk;
    const Halves x = RandomHalves(c.tokens * hidden, 1);
    Halves rows(slots * hidden, Bf16{0x7fff});
    GatherRows({slots, hidden, x.data(), p.token_of_row.data(), rows.data()},
               InlineStream());
    for (int64_t i = 0; i < slots * hidden; ++i) {
      const int64_t token = p.token_of_row[i / hidden];
      ASSERT_EQ(rows[i].bits, x[token * hidden + i % hidden].bits) << i;
    }
    const Halves values = RandomHalves(slots * hidden, 2);
    Halves out(c.tokens * hidden, Bf16{0x7fff});
    CombineRows({c.tokens, c.topk, hidden, c.per_rank, values.data(),
                 p.sorted_rows.data(), p.sorted_experts.data(), nullptr,
                 nullptr, out.data()},
                InlineStream());
    EXPECT_TRUE(SameBits(out, Rounded(CanonicalSum(c, index, p, Widened(values),
                                                   hidden, &RoundedToBf16))));
  }
}

TEST(PermuteTest, ManyTokensOfManyChoicesAreSummed) {
  const Case c = {"", 9001, 70, 80, 20};
  constexpr int64_t kHidden = 2;
  const Ints index = RandomChoices(c.tokens, c.topk, c.experts);
  const Permutation p = Build(c.tokens, c.topk, c.experts, index);
  const Floats rows = RandomFloats(c.tokens * c.topk * kHidden, 1);
  Floats out = Unwritten(c.tokens * kHidden);
  CombineRows(
      {c.tokens, c.topk, kHidden, c.per_rank, rows.data(), p.sorted_rows.data(),
       p.sorted_experts.data(), nullptr, nullptr, out.data()},
      InlineStream());
  EXPECT_TRUE(SameBits(out, CanonicalSum(c, index, p, rows, kHidden)));
}

TEST(PermuteTest, BitsDoNotDependOnAlignment) {
  constexpr int64_t kHidden = 64;
  const Case c = {"", 9, 4, 8, 2};
  const Ints index = RandomChoices(c.tokens, c.topk, c.experts);
  const Permutation p = Build(c.tokens, c.topk, c.experts, index);
  const int64_t slots = c.tokens * c.topk;
  const Floats rows = RandomFloats(slots * kHidden + 1, 1);
  const Floats shifted(rows.begin() + 1, rows.end());
  Floats sums[2];
  Floats moved[2];
  for (int i = 0; i < 2; ++i) {
    const float* from = i == 0 ? rows.data() + 1 : shifted.data();
    sums[i] = Unwritten(c.tokens * kHidden);
    moved[i] = Unwritten(slots * kHidden);
    CombineRows(
        {c.tokens, c.topk, kHidden, c.per_rank, from, p.sorted_rows.data(),
         p.sorted_experts.data(), nullptr, nullptr, sums[i].data()},
        InlineStream());
    GatherRows({slots, kHidden, from, p.token_of_row.data(), moved[i].data()},
               InlineStream());
  }
  EXPECT_TRUE(SameBits(sums[0], sums[1]));
  EXPECT_TRUE(SameBits(moved[0], moved[1]));
}

}  // namespace
}  // namespace weft::ops
