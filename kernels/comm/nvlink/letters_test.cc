#include "kernels/comm/nvlink/letters.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::comm::nvlink {
namespace {

using ::testing::ElementsAre;

absl::Status WaitOn() { return absl::OkStatus(); }

class LettersTest : public testing::Test {
 protected:
  static constexpr int kMembers = 3;

  LettersTest() {
    for (int member = 0; member < kMembers; ++member) {
      memory_.push_back(std::make_unique<GroupBoard>());
      boards_.push_back(memory_.back().get());
    }
  }

  std::vector<std::unique_ptr<GroupBoard>> memory_;  // all zeros
  std::vector<GroupBoard*> boards_;
};

TEST_F(LettersTest, EveryMemberGetsEveryLetterOfItsTurn) {
  std::vector<std::thread> threads;
  for (int member = 0; member < kMembers; ++member) {
    threads.emplace_back([this, member] {
      Letters letters(boards_, member);
      for (int turn = 0; turn < 300; ++turn) {
        const auto text = [turn](int from) {
          return absl::StrCat(std::string(turn * 10, 'x'), from, "/", turn);
        };
        const auto all = letters.Exchange(text(member), &WaitOn);
        ASSERT_OK(all);
        ASSERT_THAT(*all, ElementsAre(text(0), text(1), text(2)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(LettersTest, ErrorOfTheCheckEndsTheWaitAndMissingMembersAreKnown) {
  std::thread other([this] {
    Letters letters(boards_, 1);
    (void)letters.Exchange("one", [] { return absl::AbortedError("enough"); });
  });
  Letters letters(boards_, 0);
  const auto all = letters.Exchange("zero", [this]() -> absl::Status {
    if (Load(boards_[1]->posted) == 0) return absl::OkStatus();
    return absl::CancelledError("rank 2 sleeps");
  });
  other.join();
  EXPECT_THAT(all, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(letters.MissingMembers(), ElementsAre(2));
}

TEST_F(LettersTest, MoreThanALetterHoldsIsRefused) {
  Letters letters({boards_[0]}, 0);
  EXPECT_OK(letters.Exchange(std::string(kLetterBytes, 'x'), &WaitOn));
  EXPECT_THAT(letters.Exchange(std::string(kLetterBytes + 1, 'x'), &WaitOn),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(FlagTest, NumbersAreComparedAroundZero) {
  EXPECT_TRUE(HasReached(5, 5));
  EXPECT_TRUE(HasReached(2, 0xFFFFFFFF));
  EXPECT_FALSE(HasReached(0xFFFFFFFF, 2));
}

}  // namespace
}  // namespace weft::comm::nvlink
