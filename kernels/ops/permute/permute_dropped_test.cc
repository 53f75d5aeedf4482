// Slots without a row, and rows without a slot.
#include <algorithm>
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

using Offsets = testing::Vector<int64_t>;

struct Case {
  std::string name;
  int64_t tokens;
  int64_t topk;
  int64_t experts;
  int64_t per_rank;
  int64_t capacity;
  bool pad;
};

// Of each expert the first `capacity` slots that stay are the even ones; of the
// first token none stays.
class PermuteDropped : public ::testing::TestWithParam<Case> {
 protected:
  PermuteDropped()
      : rows_(c_.pad ? c_.experts * c_.capacity : slots() + 3),
        kept_(c_.experts) {
    for (int64_t s = 0; s < slots(); ++s) {
      const int64_t token = s / c_.topk;
      const int32_t expert = (token * 5 + s % c_.topk * 3) % c_.experts;
      auto& of_expert = kept_[expert];
      const bool stays = token > 0 && s % 2 == 0 &&
                         static_cast<int64_t>(of_expert.size()) < c_.capacity;
      index_.push_back(stays ? expert : -1);
      if (stays) of_expert.push_back(s);
    }
    const Ints of_slots(slots(), -2), of_rows(rows_, -2);
    row_of_slot_ = sorted_rows_ = sorted_experts_ = of_slots;
    slot_of_row_ = token_of_row_ = of_rows;
    offsets_.assign(c_.experts + 1, -1);
    BuildPermutation({c_.tokens, c_.topk, c_.experts, index_.data(),
                      offsets_.data(), row_of_slot_.data(), slot_of_row_.data(),
                      token_of_row_.data(), sorted_rows_.data(),
                      sorted_experts_.data(), rows_, c_.pad ? c_.capacity : 0},
                     InlineStream());
  }

  int64_t slots() const { return c_.tokens * c_.topk; }

  const Case c_ = GetParam();
  const int64_t rows_;
  std::vector<std::vector<int32_t>> kept_;  // slots by expert
  Ints index_;
  Offsets offsets_;
  Ints row_of_slot_, slot_of_row_, token_of_row_, sorted_rows_, sorted_experts_;
};

TEST_P(PermuteDropped, RowsAreThoseOfWhatStays) {
  Ints slot_of_row(rows_, -1), row_of_slot(slots(), -1);
  int64_t row = 0;
  for (int64_t e = 0; e < c_.experts; ++e) {
    EXPECT_EQ(offsets_[e], row);
    int64_t next = row;
    for (const int32_t slot : kept_[e]) {
      slot_of_row[next] = slot;
      row_of_slot[slot] = static_cast<int32_t>(next++);
    }
    row = c_.pad ? row + c_.capacity : next;
  }
  EXPECT_EQ(offsets_[c_.experts], row);
  EXPECT_EQ(slot_of_row_, slot_of_row);
  EXPECT_EQ(row_of_slot_, row_of_slot);
  for (int64_t r = 0; r < rows_; ++r) {
    const int32_t slot = slot_of_row[r];
    ASSERT_EQ(token_of_row_[r], slot < 0 ? -1 : slot / c_.topk) << r;
  }
}

TEST_P(PermuteDropped, SortedRowsEndWithThoseThatAreDropped) {
  for (int64_t t = 0; t < c_.tokens; ++t) {
    std::vector<std::pair<uint32_t, int32_t>> expected;
    for (int64_t s = t * c_.topk; s < (t + 1) * c_.topk; ++s) {
      expected.emplace_back(index_[s], row_of_slot_[s]);
    }
    std::sort(expected.begin(), expected.end());
    for (int64_t j = 0; j < c_.topk; ++j) {
      ASSERT_EQ(sorted_experts_[t * c_.topk + j],
                static_cast<int32_t>(expected[j].first));
      ASSERT_EQ(sorted_rows_[t * c_.topk + j], expected[j].second);
    }
  }
}

TEST_P(PermuteDropped, WhatIsNotThereIsGatheredAsZero) {
  constexpr int64_t kHidden = 9;
  const Floats x = RandomFloats(c_.tokens * kHidden, 1);
  Floats rows = Unwritten(rows_ * kHidden);
  GatherRows({rows_, kHidden, x.data(), token_of_row_.data(), rows.data()},
             InlineStream());
  Halves halves(rows_ * kHidden, Bf16{0x7fff});
  const Halves narrow = Rounded(x);
  GatherRows(
      {rows_, kHidden, narrow.data(), token_of_row_.data(), halves.data()},
      InlineStream());
  for (int64_t i = 0; i < rows_ * kHidden; ++i) {
    const int32_t token = token_of_row_[i / kHidden];
    ASSERT_EQ(rows[i], token < 0 ? 0 : x[token * kHidden + i % kHidden]);
    ASSERT_EQ(halves[i].bits,
              token < 0 ? 0 : narrow[token * kHidden + i % kHidden].bits);
  }
  const Floats d_rows = RandomFloats(rows_, 2);
  Floats d_slots = Unwritten(slots());
  GatherElements({slots(), d_rows.data(), row_of_slot_.data(), d_slots.data()},
                 InlineStream());
  for (int64_t s = 0; s < slots(); ++s) {
    ASSERT_EQ(d_slots[s], row_of_slot_[s] < 0 ? 0 : d_rows[row_of_slot_[s]]);
  }
}

TEST_P(PermuteDropped, CombineSumsWhatStaysByRank) {
  for (const int64_t hidden : {1, 8, 300}) {
    const Floats rows = RandomFloats(rows_ * hidden, 3);
    const Floats add = RandomFloats(c_.tokens * hidden, 4);
    Floats sums = Unwritten(c_.tokens * hidden), alone = sums;
    CombineRowsArgs args = {c_.tokens,
                            c_.topk,
                            hidden,
                            c_.per_rank,
                            rows.data(),
                            sorted_rows_.data(),
                            sorted_experts_.data(),
                            {},
                            {},
                            alone.data()};
    CombineRows(args, InlineStream());
    args.add1 = add.data();
    args.out = sums.data();
    CombineRows(args, InlineStream());
    for (int64_t i = 0; i < c_.tokens * hidden; ++i) {
      const int64_t t = i / hidden;
      float total = 0, partial = 0;
      bool has_total = false;
      for (int64_t j = t * c_.topk; j < (t + 1) * c_.topk; ++j) {
        if (sorted_rows_[j] < 0) break;
        partial += rows[sorted_rows_[j] * hidden + i % hidden];
        const bool ends = j + 1 == (t + 1) * c_.topk ||
                          sorted_rows_[j + 1] < 0 ||
                          sorted_experts_[j + 1] / c_.per_rank !=
                              sorted_experts_[j] / c_.per_rank;
        if (!ends) continue;
        total = has_total ? total + partial : partial;
        has_total = true;
        partial = 0;
      }
      ASSERT_EQ(alone[i], total) << i;
      ASSERT_EQ(sums[i], add[i] + total) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, PermuteDropped,
    ::testing::Values(Case{"Drop", 12, 4, 8, 2, 3, false},
                      Case{"Pad", 12, 4, 8, 2, 3, true},
                      Case{"PadBeyondTokens", 5, 2, 6, 3, 9, true},
                      Case{"DropTopOne", 9, 1, 4, 4, 1, false},
                      Case{"PadMany", 900, 4, 32, 8, 50, true},
                      Case{"DropMany", 900, 4, 32, 8, 50, false},
                      Case{"DropOfManyChoices", 40, 20, 64, 16, 7, false},
                      Case{"PadNoToken", 0, 2, 4, 2, 3, true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::ops
