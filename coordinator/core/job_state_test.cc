#include "coordinator/core/job_state.h"

#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The diagram of job_state.h.
const std::set<std::pair<v1::JobState, v1::JobState>>& Allowed() {
  static const auto& allowed =
      *new std::set<std::pair<v1::JobState, v1::JobState>>{
          {v1::JOB_STATE_QUEUED, v1::JOB_STATE_STARTING},
          {v1::JOB_STATE_QUEUED, v1::JOB_STATE_CANCELLED},
          {v1::JOB_STATE_QUEUED, v1::JOB_STATE_FAILED},
          {v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING},
          {v1::JOB_STATE_STARTING, v1::JOB_STATE_STOPPING},
          {v1::JOB_STATE_STARTING, v1::JOB_STATE_FAILED},
          {v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED},
          {v1::JOB_STATE_RUNNING, v1::JOB_STATE_STOPPING},
          {v1::JOB_STATE_RUNNING, v1::JOB_STATE_FAILED},
          {v1::JOB_STATE_STOPPING, v1::JOB_STATE_CANCELLED},
          {v1::JOB_STATE_STOPPING, v1::JOB_STATE_FAILED},
      };
  return allowed;
}

v1::JobState State(int number) { return static_cast<v1::JobState>(number); }

TEST(JobStateTest, EveryPairOfStatesIsAllowedOrRefusedByName) {
  for (int from = 0; from < v1::JobState_ARRAYSIZE; ++from) {
    for (int to = 0; to < v1::JobState_ARRAYSIZE; ++to) {
      const absl::Status status = CheckMove(State(from), State(to));
      if (Allowed().count({State(from), State(to)}) != 0) {
        EXPECT_OK(status);
        continue;
      }
      EXPECT_THAT(
          status,
          StatusIs(
              absl::StatusCode::kFailedPrecondition,
              AllOf(HasSubstr(absl::StrCat("state ", ShortName(State(from)))),
                    HasSubstr(absl::StrCat("to ", ShortName(State(to)))))));
    }
  }
}

TEST(JobStateTest, FinalStatesAreThoseWithoutAWayOut) {
  for (int from = 1; from < v1::JobState_ARRAYSIZE; ++from) {
    bool has_way_out = false;
    for (int to = 0; to < v1::JobState_ARRAYSIZE; ++to) {
      has_way_out |= CheckMove(State(from), State(to)).ok();
    }
    EXPECT_NE(IsFinal(State(from)), has_way_out) << ShortName(State(from));
  }
}

TEST(JobStateTest, NamesAreShort) {
  EXPECT_EQ(ShortName(v1::JOB_STATE_RUNNING), "RUNNING");
  EXPECT_EQ(ShortName(State(99)), "unknown");
}

}  // namespace
}  // namespace weft::coordinator
