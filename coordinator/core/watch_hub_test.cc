#include "coordinator/core/watch_hub.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr WatchHub::Options kSmall = {/*log_size=*/4, /*ended_jobs=*/2};

// Appends step `revision` to job `id`, and wakes.
void Step(WatchHub& hub, const std::string& id, int64_t revision,
          v1::JobState state = v1::JOB_STATE_RUNNING) {
  v1::Job job;
  job.set_id(id);
  job.set_state(state);
  job.set_revision(revision);
  v1::WatchJobResponse update;
  update.set_revision(revision);
  update.mutable_step()->set_step(revision);
  hub.Append(job, update)();
}

// "s4" for a snapshot at revision 4, "4" for an update.
std::vector<std::string> Drain(Watch& watch) {
  std::vector<std::string> seen;
  v1::WatchJobResponse message;
  Watch::Result result;
  while ((result = watch.Next(&message)) == Watch::kMessage) {
    seen.push_back(
        absl::StrCat(message.has_snapshot() ? "s" : "", message.revision()));
  }
  if (result == Watch::kEnd) seen.push_back("end");
  return seen;
}

TEST(WatchHubTest, BeginsWithASnapshotThenUpdates) {
  WatchHub hub(kSmall);
  Step(hub, "a", 1);
  Step(hub, "a", 2);
  ASSERT_OK_AND_ASSIGN(auto watch, hub.Open("a", 0, [] {}));
  EXPECT_THAT(Drain(*watch), ElementsAre("s2"));
  Step(hub, "a", 3);
  EXPECT_THAT(Drain(*watch), ElementsAre("3"));
}

TEST(WatchHubTest, ResumesAfterARevision) {
  WatchHub hub(kSmall);
  for (int revision = 1; revision <= 6; ++revision) Step(hub, "a", revision);
  // Revisions 3 to 6 are kept.
  ASSERT_OK_AND_ASSIGN(auto watch, hub.Open("a", 2, [] {}));
  EXPECT_THAT(Drain(*watch), ElementsAre("3", "4", "5", "6"));
  ASSERT_OK_AND_ASSIGN(watch, hub.Open("a", 6, [] {}));
  EXPECT_THAT(Drain(*watch), IsEmpty());
  for (int64_t revision : {-1, 1, 7}) {
    EXPECT_THAT(hub.Open("a", revision, [] {}),
                StatusIs(absl::StatusCode::kOutOfRange));
  }
  EXPECT_THAT(hub.Open("b", 0, [] {}), StatusIs(absl::StatusCode::kNotFound));
}

TEST(WatchHubTest, ASlowReaderGetsTheLatestStateInsteadOfABacklog) {
  WatchHub hub(kSmall);
  Step(hub, "a", 1);
  ASSERT_OK_AND_ASSIGN(auto watch, hub.Open("a", 1, [] {}));
  for (int revision = 2; revision <= 9; ++revision) Step(hub, "a", revision);
  EXPECT_THAT(Drain(*watch), ElementsAre("s9"));
  Step(hub, "a", 10);
  EXPECT_THAT(Drain(*watch), ElementsAre("10"));
}

TEST(WatchHubTest, EndsWithASnapshot) {
  WatchHub hub(kSmall);
  Step(hub, "a", 1);
  ASSERT_OK_AND_ASSIGN(auto watch, hub.Open("a", 1, [] {}));
  Step(hub, "a", 2, v1::JOB_STATE_FAILED);
  EXPECT_THAT(Drain(*watch), ElementsAre("2", "s2", "end"));
  ASSERT_OK_AND_ASSIGN(watch, hub.Open("a", 0, [] {}));
  EXPECT_THAT(Drain(*watch), ElementsAre("s2", "end"));
  ASSERT_OK_AND_ASSIGN(watch, hub.Open("a", 2, [] {}));
  EXPECT_THAT(Drain(*watch), ElementsAre("s2", "end"));
}

TEST(WatchHubTest, CallsWaitingReadersOnce) {
  WatchHub hub(kSmall);
  Step(hub, "a", 1);
  Step(hub, "b", 1);
  int news = 0;
  ASSERT_OK_AND_ASSIGN(auto watch, hub.Open("a", 0, [&] { ++news; }));
  Step(hub, "a", 2);
  EXPECT_EQ(news, 0);  // it does not wait
  Drain(*watch);
  Step(hub, "b", 2);
  EXPECT_EQ(news, 0);
  Step(hub, "a", 3);
  Step(hub, "a", 4);
  EXPECT_EQ(news, 1);
  Drain(*watch);
  watch.reset();
  Step(hub, "a", 5);
  EXPECT_EQ(news, 1);
}

TEST(WatchHubTest, DropsTheLogsOfJobsThatEndedFirst) {
  WatchHub hub(kSmall);
  Step(hub, "running", 1);
  for (const char* id : {"a", "b", "c"}) {
    Step(hub, id, 1, v1::JOB_STATE_SUCCEEDED);
  }
  EXPECT_THAT(hub.Open("a", 0, [] {}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_OK(hub.Open("b", 0, [] {}));
  EXPECT_OK(hub.Open("c", 0, [] {}));
  EXPECT_OK(hub.Open("running", 0, [] {}));
}

// A store that failed for long has missed some.
TEST(WatchHubTest, AGapInThePastIsNotPassedOverInSilence) {
  WatchHub hub({/*log_size=*/16, /*ended_jobs=*/2});
  v1::Job job;
  job.set_id("a");
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  job.set_revision(9);
  std::vector<v1::WatchJobResponse> updates;
  for (int revision : {1, 2, 8, 9}) {
    updates.emplace_back().set_revision(revision);
  }
  hub.Restore(job, updates);
  EXPECT_THAT(hub.Open("a", 2, [] {}), StatusIs(absl::StatusCode::kOutOfRange));
  ASSERT_OK_AND_ASSIGN(auto watch, hub.Open("a", 7, [] {}));
  EXPECT_THAT(Drain(*watch), ElementsAre("8", "9", "s9", "end"));
}

TEST(WatchHubTest, RestoresThePast) {
  WatchHub hub(kSmall);
  v1::Job job;
  job.set_id("a");
  job.set_revision(6);
  v1::WatchJobResponse update;
  update.set_revision(6);
  hub.Restore(job, {update});
  ASSERT_OK_AND_ASSIGN(auto watch, hub.Open("a", 5, [] {}));
  EXPECT_THAT(Drain(*watch), ElementsAre("6"));
  EXPECT_THAT(hub.Open("a", 4, [] {}), StatusIs(absl::StatusCode::kOutOfRange));
}

}  // namespace
}  // namespace weft::coordinator
