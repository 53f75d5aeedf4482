#include "client/follow.h"

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status_matchers.h"
#include "client/state_name.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Answers watches by a script; nothing else.
class ScriptedClient : public CoordinatorClient {
 public:
  struct Watch {
    std::vector<v1::WatchJobResponse> messages;
    absl::Status end;
    absl::Duration silence = absl::ZeroDuration();  // before it ends
  };

  absl::StatusOr<v1::SubmitJobResponse> SubmitJob(
      v1::SubmitJobRequest) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<v1::ValidateJobResponse> ValidateJob(
      const v1::ValidateJobRequest&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<v1::GetJobResponse> GetJob(const v1::GetJobRequest&) override {
    v1::GetJobResponse response;
    response.mutable_job()->set_state(state_now);
    return response;
  }
  absl::StatusOr<v1::ListJobsResponse> ListJobs(
      const v1::ListJobsRequest&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<v1::CancelJobResponse> CancelJob(
      const v1::CancelJobRequest&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<v1::GetPlanResponse> GetPlan(
      const v1::GetPlanRequest&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<v1::ListRulesResponse> ListRules() override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers() override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<v1::GetClusterInfoResponse> GetClusterInfo() override {
    return absl::UnimplementedError("");
  }
  absl::Status WatchJob(const v1::WatchJobRequest& request, absl::Time,
                        const std::function<void(const v1::WatchJobResponse&)>&
                            on_message) override {
    asked_after.push_back(request.after_revision());
    clock->Advance(absl::Milliseconds(1));
    if (script.empty()) return absl::UnavailableError("script has ended");
    const Watch watch = std::move(script.front());
    script.pop_front();
    for (const auto& message : watch.messages) on_message(message);
    clock->Advance(watch.silence);
    return watch.end;
  }

  FakeClock* clock = nullptr;
  std::deque<Watch> script;
  std::vector<int64_t> asked_after;
  v1::JobState state_now = v1::JOB_STATE_RUNNING;
};

v1::WatchJobResponse Snapshot(int64_t revision, v1::JobState state) {
  v1::WatchJobResponse message;
  message.set_revision(revision);
  message.mutable_snapshot()->set_state(state);
  return message;
}

v1::WatchJobResponse Step(int64_t revision) {
  v1::WatchJobResponse message;
  message.set_revision(revision);
  message.mutable_step()->set_step(revision);
  return message;
}

class FollowTest : public ::testing::Test {
 protected:
  FollowTest() {
    options_.patience = absl::Seconds(60);
    options_.retry_interval = absl::Milliseconds(1);
    options_.clock = &clock_;
    client_.clock = &clock_;
  }

  absl::StatusOr<v1::Job> Run() {
    return Follow(client_, "x", options_,
                  [this](const v1::WatchJobResponse& message) {
                    seen_.push_back(message.revision());
                  });
  }

  FakeClock clock_;
  ScriptedClient client_;
  FollowOptions options_;
  std::vector<int64_t> seen_;
};

TEST_F(FollowTest, ReturnsTheJobOfTheLastSnapshot) {
  client_.script = {{{Snapshot(1, v1::JOB_STATE_RUNNING), Step(2), Step(3),
                      Snapshot(4, v1::JOB_STATE_SUCCEEDED)},
                     absl::OkStatus()}};
  ASSERT_OK_AND_ASSIGN(const v1::Job job, Run());
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(seen_, ElementsAre(1, 2, 3, 4));
}

TEST_F(FollowTest, TakesUpTheWatchWhereItBroke) {
  client_.script = {
      {{Snapshot(1, v1::JOB_STATE_RUNNING), Step(7)},
       absl::UnavailableError("gone")},
      {{}, absl::UnavailableError("still gone")},
      {{Step(8), Snapshot(9, v1::JOB_STATE_FAILED)}, absl::OkStatus()}};
  ASSERT_OK_AND_ASSIGN(const v1::Job job, Run());
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(client_.asked_after, ElementsAre(0, 7, 7));
  EXPECT_THAT(seen_, ElementsAre(1, 7, 8, 9));
}

TEST_F(FollowTest, BeginsAnewWhenTheRevisionIsNoLongerKept) {
  client_.script = {
      {{Step(7)}, absl::UnavailableError("gone")},
      {{}, absl::OutOfRangeError("compacted")},
      {{Snapshot(90, v1::JOB_STATE_CANCELLED)}, absl::OkStatus()}};
  ASSERT_OK_AND_ASSIGN(const v1::Job job, Run());
  EXPECT_EQ(job.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_THAT(client_.asked_after, ElementsAre(0, 7, 0));
}

TEST_F(FollowTest, AsksForTheJobWhenAWatchEndsWithoutSayingHow) {
  client_.script = {{{Step(7)}, absl::OkStatus()}};
  client_.state_now = v1::JOB_STATE_SUCCEEDED;
  ASSERT_OK_AND_ASSIGN(const v1::Job job, Run());
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
}

// As for a queued job: the coordinator restarts, the watch is taken up again,
// nothing happens for long, and the coordinator restarts once more.
TEST_F(FollowTest, ASilentWatchDoesNotUseUpThePatience) {
  options_.patience = absl::Milliseconds(200);
  client_.script = {
      {{Snapshot(1, v1::JOB_STATE_QUEUED)}, absl::UnavailableError("gone")},
      {{}, absl::UnavailableError("gone"), absl::Milliseconds(300)},
      {{Snapshot(2, v1::JOB_STATE_SUCCEEDED)}, absl::OkStatus()}};
  ASSERT_OK_AND_ASSIGN(const v1::Job job, Run());
  EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(FollowTest, OtherErrorsEndIt) {
  client_.script = {{{}, absl::NotFoundError("no job x")}};
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(FollowTest, PatienceAndDeadlineEndIt) {
  options_.patience = absl::Milliseconds(5);
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kUnavailable));
  options_.patience = absl::InfiniteDuration();
  options_.deadline = clock_.Now() + absl::Milliseconds(5);
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                              HasSubstr("it goes on")));
}

TEST(ExitCodeTest, SaysHowTheJobEnded) {
  EXPECT_EQ(ExitCodeOf(v1::JOB_STATE_SUCCEEDED), 0);
  EXPECT_EQ(ExitCodeOf(v1::JOB_STATE_FAILED), 3);
  EXPECT_EQ(ExitCodeOf(v1::JOB_STATE_CANCELLED), 4);
  EXPECT_TRUE(HasEnded(v1::JOB_STATE_CANCELLED));
  EXPECT_FALSE(HasEnded(v1::JOB_STATE_STOPPING));
}

}  // namespace
}  // namespace weft::client
