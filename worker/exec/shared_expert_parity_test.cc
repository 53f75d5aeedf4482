// A shared expert beside the all-to-alls gives the bits of one before them.
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/exec/testing/parity.h"

namespace weft::exec {
namespace {

using testing::Difference;
using testing::Outcome;
using testing::ParityTest;
using testing::SyntheticSamples;
using testing::TinyJob;
using testing::Train;
using testing::WorldName;
using testing::Worlds;

constexpr char kOverlap[] = "model { moe { overlap_shared_expert: true } } ";

class SharedExpertParityTest : public ParityTest {
 protected:
  // In all orders, and as it is without overlap.
  void Compare(TinyJob tiny) {
    std::tie(tiny.world, tiny.ep) = GetParam();
    tiny.microbatches = 3;
    ASSERT_OK_AND_ASSIGN(const Outcome serial,
                         Train(tiny, SyntheticSamples::Kind::kRule));
    tiny.more = absl::StrCat(kOverlap, tiny.more);
    Outcome overlapped;
    ASSERT_NO_FATAL_FAILURE(
        CompareOrders(tiny, SyntheticSamples::Kind::kRule, &overlapped));
    EXPECT_EQ(Difference(serial, overlapped), "") << tiny.more;
  }
};

TEST_P(SharedExpertParityTest, ItsPlaceChangesNoBit) { Compare({}); }

TEST_P(SharedExpertParityTest, NorDoesThatOfOneWithAGate) {
  TinyJob tiny;
  tiny.optional_parts = true;
  tiny.more = "model { residual_multiplier: 0.5 }";
  Compare(tiny);
}

TEST_P(SharedExpertParityTest, NorInBf16) {
  TinyJob tiny;
  tiny.optional_parts = true;
  tiny.compute = v1::NUMBER_FORMAT_BF16;
  Compare(tiny);
}

TEST_P(SharedExpertParityTest, NorOfOneThatIsComputedAgain) {
  for (const char* recompute : {"full: true",
                                "parts: RECOMPUTE_PART_SHARED_EXPERT "
                                "parts: RECOMPUTE_PART_NORM"}) {
    TinyJob tiny;
    tiny.optional_parts = true;
    tiny.more = absl::StrCat("schedule { recompute { ", recompute, " } }");
    Compare(tiny);
  }
}

TEST_P(SharedExpertParityTest, NorWhereTokensAreGathered) {
  TinyJob tiny;
  tiny.more = "parallel { dispatcher: DISPATCHER_ALLGATHER }";
  Compare(tiny);
}

TEST_P(SharedExpertParityTest, NorUnderAnyStrategy) {
  few_orders_ = true;
  TinyJob tiny;
  tiny.microbatches = 2;
  tiny.more = kOverlap;
  CompareAll(tiny, SyntheticSamples::Kind::kRule);
}

INSTANTIATE_TEST_SUITE_P(Worlds, SharedExpertParityTest,
                         ::testing::ValuesIn(Worlds()), WorldName);

}  // namespace
}  // namespace weft::exec
