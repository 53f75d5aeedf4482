#include "worker/service/session_state.h"

#include <set>
#include <utility>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SessionStateTest, AllowsExactlyTheArrowsOfTheDiagram) {
  using S = SessionState;
  const std::set<std::pair<S, S>> legal = {
      {S::kPreparing, S::kRendezvous}, {S::kRendezvous, S::kReady},
      {S::kReady, S::kRunning},        {S::kPreparing, S::kStopping},
      {S::kRendezvous, S::kStopping},  {S::kReady, S::kStopping},
      {S::kRunning, S::kStopping},     {S::kStopping, S::kFinished},
  };
  for (int from = 0; from < kNumSessionStates; ++from) {
    for (int to = 0; to < kNumSessionStates; ++to) {
      const auto f = static_cast<S>(from);
      const auto t = static_cast<S>(to);
      EXPECT_EQ(CheckTransition(f, t).ok(), legal.count({f, t}) == 1)
          << Name(f) << " -> " << Name(t);
    }
  }
}

TEST(SessionStateTest, IllegalMoveNamesBothStates) {
  EXPECT_THAT(CheckTransition(SessionState::kFinished, SessionState::kRunning),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("FINISHED"), HasSubstr("RUNNING"))));
}

}  // namespace
}  // namespace weft::service
