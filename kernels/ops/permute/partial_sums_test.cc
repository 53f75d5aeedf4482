// A rank that has the tokens of all ranks: which rows its experts get, and that
// partial sums, combined where tokens came from, have the bits of sums made
// there.
#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops/permute/permute.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Floats;
using testing::Halves;
using testing::InlineStream;
using testing::Ints;
using testing::RandomFloats;
using testing::Rounded;
using testing::SameBits;
using testing::Unwritten;
using testing::UnwrittenOf;

using Offsets = testing::Vector<int64_t>;

// `topk` different experts for each token.
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

struct Permutation {
  Permutation(int64_t tokens, int64_t topk, const Ints& index,
              int64_t first_expert, int64_t experts, int64_t rows = 0)
      : offsets(experts + 1, -7),
        row_of_slot(tokens * topk, -7),
        slot_of_row(rows == 0 ? tokens * topk : rows, -7),
        token_of_row(slot_of_row.size(), -7),
        sorted_rows(tokens * topk, -7),
        sorted_experts(tokens * topk, -7) {
    BuildPermutation(
        {tokens, topk, experts, index.data(), offsets.data(),
         row_of_slot.data(), slot_of_row.data(), token_of_row.data(),
         sorted_rows.data(), sorted_experts.data(),
         static_cast<int64_t>(slot_of_row.size()), 0, first_expert},
        InlineStream());
  }

  Offsets offsets;
  Ints row_of_slot, slot_of_row, token_of_row, sorted_rows, sorted_experts;
};

// `ranks` ranks of `tokens` tokens and `local` experts.
struct World {
  std::string name;
  int64_t ranks;
  int64_t tokens;
  int64_t topk;
  int64_t local;
};

class PartialSumsTest : public ::testing::TestWithParam<World> {
 protected:
  int64_t all_tokens() const { return w_.ranks * w_.tokens; }
  int64_t all_slots() const { return all_tokens() * w_.topk; }

  Permutation OfRank(int64_t rank, int64_t rows = 0) const {
    return Permutation(all_tokens(), w_.topk, index_, rank * w_.local, w_.local,
                       rows);
  }

  // What CombineRows makes of the tokens of one rank, given the experts' row of
  // each of its slots.
  template <typename V>
  V CombinedAtOnce(int64_t rank, const V& of_slots, int64_t hidden) const {
    const int64_t slots = w_.tokens * w_.topk;
    const Ints own(index_.begin() + rank * slots,
                   index_.begin() + (rank + 1) * slots);
    const Permutation p(w_.tokens, w_.topk, own, 0, w_.ranks * w_.local);
    V rows(slots * hidden);
    for (int64_t r = 0; r < slots; ++r) {
      std::copy_n(of_slots.begin() + (rank * slots + p.slot_of_row[r]) * hidden,
                  hidden, rows.begin() + r * hidden);
    }
    V out = UnwrittenOf<V>(w_.tokens * hidden);
    CombineRows({w_.tokens, w_.topk, hidden, w_.local, rows.data(),
                 p.sorted_rows.data(), p.sorted_experts.data(), ConstTensor(),
                 ConstTensor(), out.data()},
                InlineStream());
    return out;
  }

  // The partial sums of the experts of `rank`, of the tokens of all ranks.
  template <typename V>
  V PartialSums(int64_t rank, const V& of_slots, int64_t hidden) const {
    const Permutation p = OfRank(rank);
    V rows = UnwrittenOf<V>(all_slots() * hidden);
    GatherRows({all_slots(), hidden, of_slots.data(), p.slot_of_row.data(),
                rows.data(), &p.offsets[w_.local]},
               InlineStream());
    V out = UnwrittenOf<V>(all_tokens() * hidden);
    CombineRows({all_tokens(), w_.topk, hidden, w_.local, rows.data(),
                 p.sorted_rows.data(), p.sorted_experts.data(), ConstTensor(),
                 ConstTensor(), out.data()},
                InlineStream());
    return out;
  }

  template <typename V>
  void ExpectTheSameBits(const V& of_slots, int64_t hidden) const {
    std::vector<V> partials;
    for (int64_t r = 0; r < w_.ranks; ++r) {
      partials.push_back(PartialSums(r, of_slots, hidden));
    }
    const int64_t slots = w_.tokens * w_.topk;
    for (int64_t rank = 0; rank < w_.ranks; ++rank) {
      V back;
      for (const V& partial : partials) {
        const auto begin = partial.begin() + rank * w_.tokens * hidden;
        back.insert(back.end(), begin, begin + w_.tokens * hidden);
      }
      Ints element(slots, -7);
      Ints rows(slots, -7);
      Ints ranks(slots, -7);
      IndexPartialSums(
          {w_.tokens, w_.topk, w_.local, index_.data() + rank * slots,
           element.data(), rows.data(), ranks.data()},
          InlineStream());
      V out = UnwrittenOf<V>(w_.tokens * hidden);
      CombineRows({w_.tokens, w_.topk, hidden, 1, back.data(), rows.data(),
                   ranks.data(), ConstTensor(), ConstTensor(), out.data()},
                  InlineStream());
      EXPECT_TRUE(SameBits(out, CombinedAtOnce(rank, of_slots, hidden)))
          << rank;
    }
  }

  const World w_ = GetParam();
  const Ints index_ = RandomChoices(all_tokens(), w_.topk, w_.ranks* w_.local);
};

TEST_P(PartialSumsTest, OwnExpertsGetTheirRowsInOrder) {
  for (int64_t rank = 0; rank < w_.ranks; ++rank) {
    const Permutation p = OfRank(rank);
    int64_t row = 0;
    for (int64_t e = 0; e < w_.local; ++e) {
      EXPECT_EQ(p.offsets[e], row);
      for (int64_t s = 0; s < all_slots(); ++s) {
        if (index_[s] != rank * w_.local + e) continue;
        ASSERT_EQ(p.row_of_slot[s], row) << s;
        ASSERT_EQ(p.slot_of_row[row], s) << row;
        ASSERT_EQ(p.token_of_row[row], s / w_.topk) << row;
        ++row;
      }
    }
    EXPECT_EQ(p.offsets[w_.local], row);
    for (int64_t s = 0; s < all_slots(); ++s) {
      const bool is_own = index_[s] / w_.local == rank;
      ASSERT_EQ(p.row_of_slot[s] != -1, is_own) << s;
    }
  }
}

TEST_P(PartialSumsTest, AbsentRowsOfATokenComeLast) {
  for (int64_t rank = 0; rank < w_.ranks; ++rank) {
    const Permutation p = OfRank(rank);
    for (int64_t t = 0; t < all_tokens(); ++t) {
      Ints present;
      for (int64_t s = t * w_.topk; s < (t + 1) * w_.topk; ++s) {
        if (p.row_of_slot[s] != -1) present.push_back(p.row_of_slot[s]);
      }
      std::sort(present.begin(), present.end());
      present.resize(w_.topk, -1);
      for (int64_t j = 0; j < w_.topk; ++j) {
        const int32_t row = p.sorted_rows[t * w_.topk + j];
        ASSERT_EQ(row, present[j]) << t;
        ASSERT_EQ(p.sorted_experts[t * w_.topk + j],
                  row == -1 ? -1 : index_[p.slot_of_row[row]]);
      }
    }
  }
}

TEST_P(PartialSumsTest, RowsBeyondTheBoundDoNotExist) {
  const Permutation all = OfRank(0);
  const int64_t rows = all.offsets[w_.local];
  if (rows < 2) return;
  const int64_t bound = rows / 2;
  const Permutation p = OfRank(0, bound);
  for (int64_t e = 0; e <= w_.local; ++e) {
    EXPECT_EQ(p.offsets[e], std::min(all.offsets[e], bound));
  }
  for (int64_t s = 0; s < all_slots(); ++s) {
    const int32_t row = all.row_of_slot[s];
    EXPECT_EQ(p.row_of_slot[s], row < bound ? row : -1);
    const int32_t sorted = all.sorted_rows[s];
    EXPECT_EQ(p.sorted_rows[s], sorted < bound ? sorted : -1);
  }
  for (int64_t r = 0; r < bound; ++r) {
    EXPECT_EQ(p.slot_of_row[r], all.slot_of_row[r]);
  }
}

TEST_P(PartialSumsTest, CombineToTheBitsOfOneSum) {
  for (const int64_t hidden : {1, 8, 304}) {
    Floats of_slots = RandomFloats(all_slots() * hidden, 3);
    // Adding nothing is not adding 0 where the sum is -0.
    for (size_t i = 0; i < of_slots.size(); i += 3) of_slots[i] = -0.0f;
    ExpectTheSameBits(of_slots, hidden);
    ExpectTheSameBits(Rounded(of_slots), hidden);
  }
}

TEST_P(PartialSumsTest, NumbersOfSlotsComeBack) {
  const Floats of_slots = RandomFloats(all_slots(), 4);
  Floats gathered;  // of all ranks
  for (int64_t rank = 0; rank < w_.ranks; ++rank) {
    const Permutation p = OfRank(rank);
    Floats rows = Unwritten(all_slots());
    GatherElements({all_slots(), of_slots.data(), p.slot_of_row.data(),
                    rows.data(), &p.offsets[w_.local]},
                   InlineStream());
    Floats known = Unwritten(all_slots());
    GatherElements(
        {all_slots(), rows.data(), p.row_of_slot.data(), known.data()},
        InlineStream());
    for (int64_t s = 0; s < all_slots(); ++s) {
      const bool is_own = index_[s] / w_.local == rank;
      ASSERT_EQ(known[s], is_own ? of_slots[s] : 0) << s;
    }
    gathered.insert(gathered.end(), known.begin(), known.end());
  }
  const int64_t slots = w_.tokens * w_.topk;
  for (int64_t rank = 0; rank < w_.ranks; ++rank) {
    Floats back;
    for (int64_t from = 0; from < w_.ranks; ++from) {
      const auto begin = gathered.begin() + from * all_slots() + rank * slots;
      back.insert(back.end(), begin, begin + slots);
    }
    Ints element(slots, -7);
    Ints rows(slots, -7);
    Ints ranks(slots, -7);
    IndexPartialSums(
        {w_.tokens, w_.topk, w_.local, index_.data() + rank * slots,
         element.data(), rows.data(), ranks.data()},
        InlineStream());
    Floats out = Unwritten(slots);
    GatherElements({slots, back.data(), element.data(), out.data()},
                   InlineStream());
    EXPECT_TRUE(SameBits(out, Floats(of_slots.begin() + rank * slots,
                                     of_slots.begin() + (rank + 1) * slots)));
  }
}

TEST_P(PartialSumsTest, RowsBehindTheCountAreLeftAlone) {
  constexpr int64_t kHidden = 8;
  const Permutation p = OfRank(0);
  const int64_t count = p.offsets[w_.local];
  const Floats x = RandomFloats(all_slots() * kHidden, 5);
  Floats rows(all_slots() * kHidden, -7);
  GatherRows({all_slots(), kHidden, x.data(), p.slot_of_row.data(), rows.data(),
              &p.offsets[w_.local]},
             InlineStream());
  Floats elements(all_slots(), -7);
  GatherElements({all_slots(), x.data(), p.slot_of_row.data(), elements.data(),
                  &p.offsets[w_.local]},
                 InlineStream());
  for (int64_t r = count; r < all_slots(); ++r) {
    ASSERT_EQ(elements[r], -7) << r;
    for (int64_t i = 0; i < kHidden; ++i) {
      ASSERT_EQ(rows[r * kHidden + i], -7) << r;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, PartialSumsTest,
    ::testing::Values(World{"OneRank", 1, 6, 2, 4}, World{"Two", 2, 9, 2, 4},
                      World{"Four", 4, 7, 3, 2}, World{"TopOne", 3, 5, 1, 2},
                      World{"AllExperts", 2, 4, 6, 3},
                      World{"MoreRanksThanChoices", 8, 5, 2, 3},
                      World{"NoToken", 2, 0, 2, 2},
                      World{"Large", 4, 301, 4, 8},
                      World{"ManyExperts", 4, 101, 16, 128}),
    [](const auto& info) { return info.param.name; });

TEST(IndexPartialSumsTest, ARankIsListedOnce) {
  const Ints index = {5, 0, 4, 1};  // two experts a rank: ranks 2, 0, 2, 0
  Ints element(4, -7);
  Ints rows(4, -7);
  Ints ranks(4, -7);
  IndexPartialSums(
      {1, 4, 2, index.data(), element.data(), rows.data(), ranks.data()},
      InlineStream());
  EXPECT_EQ(element, (Ints{8, 1, 10, 3}));
  EXPECT_EQ(ranks, (Ints{0, 2, -1, -1}));
  EXPECT_EQ(rows, (Ints{0, 2, -1, -1}));
}

// Each rank's sum is rounded to the format before they are added up.
TEST(CombineRowsTest, PartialSumsAreRoundedToTheFormat) {
  // 256 + 1 is 256 in bf16; so (256 + 1) + (1 + 1) is 258, not 259.
  const Halves rows = Rounded({256, 1, 1, 1});
  const Ints sorted = {0, 1, 2, 3};
  Halves out(1);
  CombineRows({1, 4, 1, 2, rows.data(), sorted.data(), sorted.data(),
               ConstTensor(), ConstTensor(), out.data()},
              InlineStream());
  EXPECT_EQ(ToFloat(out[0]), 258);
}

TEST(CombineRowsTest, TheSumOfNoRowIsZero) {
  const Ints none = {-1, -1};
  const Floats rows = {1};
  const Floats add = {2};
  Floats out = Unwritten(1);
  CombineRows({1, 2, 1, 2, rows.data(), none.data(), none.data(), ConstTensor(),
               ConstTensor(), out.data()},
              InlineStream());
  EXPECT_EQ(out[0], 0);
  CombineRows({1, 2, 1, 2, rows.data(), none.data(), none.data(), add.data(),
               ConstTensor(), out.data()},
              InlineStream());
  EXPECT_EQ(out[0], 2);
}

}  // namespace
}  // namespace weft::ops
