#include "coordinator/store/store.h"

#include <sqlite3.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "coordinator/store/memory_store.h"
#include "coordinator/store/sqlite_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A path for a new store, in a folder of its own.
std::string NewStorePath() {
  static int count = 0;
  const std::filesystem::path folder =
      std::filesystem::path(std::getenv("TEST_TMPDIR")) /
      absl::StrCat("store-", ++count);
  std::filesystem::create_directories(folder);
  return folder / "weft.db";
}

v1::Job MakeJob(const std::string& id,
                v1::JobState state = v1::JOB_STATE_QUEUED) {
  v1::Job job;
  job.set_id(id);
  job.set_state(state);
  job.mutable_spec()->set_name("job");
  return job;
}

v1::WatchJobResponse MakeStep(int64_t revision, double loss) {
  v1::WatchJobResponse update;
  update.set_revision(revision);
  update.mutable_step()->set_step(revision);
  update.mutable_step()->set_loss(loss);
  return update;
}

std::vector<std::string> Ids(const std::vector<v1::Job>& jobs) {
  std::vector<std::string> ids;
  for (const v1::Job& job : jobs) ids.push_back(job.id());
  return ids;
}

std::vector<int64_t> Revisions(
    const std::vector<v1::WatchJobResponse>& updates) {
  std::vector<int64_t> revisions;
  for (const auto& update : updates) revisions.push_back(update.revision());
  return revisions;
}

using Factory = std::function<std::unique_ptr<Store>()>;

std::unique_ptr<Store> MakeMemoryStore() {
  return std::make_unique<MemoryStore>();
}

std::unique_ptr<Store> MakeSqliteStore() {
  absl::StatusOr<std::unique_ptr<SqliteStore>> store =
      SqliteStore::Open(NewStorePath());
  if (!store.ok()) {
    ADD_FAILURE() << store.status();
    std::abort();
  }
  return *std::move(store);
}

// What every store does.
class StoreConformance : public ::testing::TestWithParam<Factory> {
 protected:
  StoreConformance() : store_(GetParam()()) {}
  std::unique_ptr<Store> store_;
};

TEST_P(StoreConformance, KeepsAJob) {
  ASSERT_OK(store_->CreateJob(MakeJob("a"), ""));
  ASSERT_OK_AND_ASSIGN(v1::Job job, store_->GetJob("a"));
  EXPECT_EQ(job.id(), "a");
  EXPECT_EQ(job.spec().name(), "job");
  EXPECT_THAT(store_->GetJob("b"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("\"b\"")));
}

TEST_P(StoreConformance, RefusesATakenId) {
  ASSERT_OK(store_->CreateJob(MakeJob("a"), ""));
  EXPECT_THAT(store_->CreateJob(MakeJob("a"), ""),
              StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_P(StoreConformance, FindsByRequestId) {
  ASSERT_OK(store_->CreateJob(MakeJob("a"), "r1"));
  ASSERT_OK(store_->CreateJob(MakeJob("b"), ""));
  ASSERT_OK(store_->CreateJob(MakeJob("c"), ""));
  ASSERT_OK_AND_ASSIGN(v1::Job job, store_->FindByRequestId("r1"));
  EXPECT_EQ(job.id(), "a");
  EXPECT_THAT(store_->FindByRequestId("r2"),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(store_->FindByRequestId(""),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(store_->CreateJob(MakeJob("d"), "r1"),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(store_->GetJob("d"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_P(StoreConformance, UpdatesAJobAndItsHistory) {
  ASSERT_OK(store_->CreateJob(MakeJob("a"), ""));
  ASSERT_OK(store_->CreateJob(MakeJob("b"), ""));
  ASSERT_OK(store_->UpdateJob(MakeJob("a", v1::JOB_STATE_RUNNING),
                              {MakeStep(1, 3.5), MakeStep(2, 3.25)}));
  ASSERT_OK(store_->UpdateJob(MakeJob("a", v1::JOB_STATE_RUNNING),
                              {MakeStep(3, 3.125)}));
  ASSERT_OK_AND_ASSIGN(v1::Job job, store_->GetJob("a"));
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  ASSERT_OK_AND_ASSIGN(auto updates, store_->LatestUpdates("a", 10));
  EXPECT_THAT(Revisions(updates), ElementsAre(1, 2, 3));
  EXPECT_EQ(updates[2].step().loss(), 3.125);
  ASSERT_OK_AND_ASSIGN(updates, store_->LatestUpdates("a", 2));
  EXPECT_THAT(Revisions(updates), ElementsAre(2, 3));
  ASSERT_OK_AND_ASSIGN(updates, store_->LatestUpdates("b", 10));
  EXPECT_THAT(updates, IsEmpty());
}

TEST_P(StoreConformance, KeepsTheLatestUpdatesOnly) {
  ASSERT_OK(store_->CreateJob(MakeJob("a"), ""));
  std::vector<v1::WatchJobResponse> updates;
  for (int i = 1; i <= kUpdatesKept; ++i) updates.push_back(MakeStep(i, 1));
  ASSERT_OK(store_->UpdateJob(MakeJob("a"), updates));
  ASSERT_OK(store_->UpdateJob(MakeJob("a"), {MakeStep(kUpdatesKept + 1, 1),
                                             MakeStep(kUpdatesKept + 2, 1)}));
  ASSERT_OK_AND_ASSIGN(updates, store_->LatestUpdates("a", 1 << 20));
  ASSERT_EQ(updates.size(), kUpdatesKept);
  EXPECT_EQ(updates.front().revision(), 3);
  EXPECT_EQ(updates.back().revision(), kUpdatesKept + 2);
}

TEST_P(StoreConformance, RefusesToUpdateAnUnknownJob) {
  EXPECT_THAT(store_->UpdateJob(MakeJob("a"), {MakeStep(1, 1)}),
              StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK_AND_ASSIGN(auto updates, store_->LatestUpdates("a", 10));
  EXPECT_THAT(updates, IsEmpty());
}

TEST_P(StoreConformance, ListsPagesNewestFirst) {
  for (const char* id : {"a", "b", "c", "d", "e"}) {
    ASSERT_OK(store_->CreateJob(MakeJob(id), ""));
  }
  ASSERT_OK_AND_ASSIGN(JobPage page, store_->ListJobs(2, 0));
  EXPECT_THAT(Ids(page.jobs), ElementsAre("e", "d"));
  ASSERT_NE(page.next, 0);
  // A job that comes between two pages moves nothing.
  ASSERT_OK(store_->CreateJob(MakeJob("f"), ""));
  ASSERT_OK_AND_ASSIGN(page, store_->ListJobs(2, page.next));
  EXPECT_THAT(Ids(page.jobs), ElementsAre("c", "b"));
  ASSERT_OK_AND_ASSIGN(page, store_->ListJobs(2, page.next));
  EXPECT_THAT(Ids(page.jobs), ElementsAre("a"));
  EXPECT_EQ(page.next, 0);
}

TEST_P(StoreConformance, ListsUnfinishedJobsOldestFirst) {
  ASSERT_OK(store_->CreateJob(MakeJob("a"), ""));
  ASSERT_OK(store_->CreateJob(MakeJob("b"), ""));
  ASSERT_OK(store_->CreateJob(MakeJob("c"), ""));
  ASSERT_OK(store_->UpdateJob(MakeJob("b", v1::JOB_STATE_FAILED), {}));
  ASSERT_OK(store_->UpdateJob(MakeJob("c", v1::JOB_STATE_RUNNING), {}));
  ASSERT_OK_AND_ASSIGN(std::vector<v1::Job> jobs, store_->UnfinishedJobs());
  EXPECT_THAT(Ids(jobs), ElementsAre("a", "c"));
}

TEST_P(StoreConformance, CountsEpochsUp) {
  EXPECT_THAT(store_->NextEpoch(), IsOkAndHolds(1));
  EXPECT_THAT(store_->NextEpoch(), IsOkAndHolds(2));
}

std::string StoreName(const ::testing::TestParamInfo<Factory>& info) {
  return info.index == 0 ? "Memory" : "Sqlite";
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreConformance,
                         ::testing::Values(MakeMemoryStore, MakeSqliteStore),
                         StoreName);

TEST(SqliteStoreTest, RemembersWhenReopened) {
  const std::string path = NewStorePath();
  {
    ASSERT_OK_AND_ASSIGN(auto store, SqliteStore::Open(path));
    ASSERT_OK(store->CreateJob(MakeJob("a"), "r1"));
    ASSERT_OK(store->UpdateJob(MakeJob("a", v1::JOB_STATE_RUNNING),
                               {MakeStep(1, 3.5)}));
    ASSERT_OK(store->NextEpoch());
  }
  ASSERT_OK_AND_ASSIGN(auto store, SqliteStore::Open(path));
  ASSERT_OK_AND_ASSIGN(v1::Job job, store->FindByRequestId("r1"));
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  ASSERT_OK_AND_ASSIGN(auto updates, store->LatestUpdates("a", 10));
  EXPECT_THAT(Revisions(updates), ElementsAre(1));
  EXPECT_THAT(store->NextEpoch(), IsOkAndHolds(2));
}

// A copy of the files while the store is open is what a killed process leaves.
TEST(SqliteStoreTest, RemembersAfterAKill) {
  const std::string path = NewStorePath();
  const std::string left = NewStorePath();
  ASSERT_OK_AND_ASSIGN(auto store, SqliteStore::Open(path));
  ASSERT_OK(store->CreateJob(MakeJob("a"), ""));
  ASSERT_OK(store->UpdateJob(MakeJob("a"), {MakeStep(1, 3.5)}));
  std::filesystem::copy(path, left);
  std::filesystem::copy(path + "-wal", left + "-wal");
  ASSERT_OK_AND_ASSIGN(auto reopened, SqliteStore::Open(left));
  ASSERT_OK_AND_ASSIGN(auto updates, reopened->LatestUpdates("a", 10));
  EXPECT_THAT(Revisions(updates), ElementsAre(1));
}

TEST(SqliteStoreTest, KeepsASecondCoordinatorOut) {
  const std::string path = NewStorePath();
  ASSERT_OK_AND_ASSIGN(auto store, SqliteStore::Open(path));
  EXPECT_THAT(SqliteStore::Open(path),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("another coordinator")));
  store.reset();
  EXPECT_OK(SqliteStore::Open(path));
}

TEST(SqliteStoreTest, RefusesAFolderThatDoesNotExist) {
  EXPECT_THAT(SqliteStore::Open("/nonexistent/weft.db"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("/nonexistent/weft.db")));
}

// Runs `sql` on the store at `path`.
void Execute(const std::string& path, const char* sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
}

TEST(SqliteStoreTest, RefusesANewerSchema) {
  const std::string path = NewStorePath();
  ASSERT_OK(SqliteStore::Open(path));
  Execute(path, "UPDATE meta SET value = 2 WHERE key = 'schema_version'");
  EXPECT_THAT(SqliteStore::Open(path),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(path), HasSubstr("schema version 2"))));
}

TEST(SqliteStoreTest, RefusesAFileThatIsNoStoreNamingIt) {
  const std::string path = NewStorePath();
  std::ofstream(path) << std::string(4096, 'x');
  EXPECT_THAT(
      SqliteStore::Open(path),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr(path), HasSubstr("file is not a database"))));
}

TEST(SqliteStoreTest, NamesTheJobWhoseRecordDoesNotParse) {
  const std::string path = NewStorePath();
  ASSERT_OK_AND_ASSIGN(auto store, SqliteStore::Open(path));
  ASSERT_OK(store->CreateJob(MakeJob("a"), "r"));
  ASSERT_OK(store->UpdateJob(MakeJob("a"), {MakeStep(1, 1)}));
  Execute(path, "UPDATE jobs SET record = x'ffff'");
  Execute(path, "UPDATE updates SET record = x'ffff'");
  const auto names_it = StatusIs(
      absl::StatusCode::kDataLoss,
      AllOf(HasSubstr(path), HasSubstr("of job \"a\" does not parse")));
  EXPECT_THAT(store->GetJob("a"), names_it);
  EXPECT_THAT(store->FindByRequestId("r"), names_it);
  EXPECT_THAT(store->UnfinishedJobs(), names_it);
  EXPECT_THAT(store->LatestUpdates("a", 5), names_it);
  EXPECT_OK(store->CreateJob(MakeJob("b"), ""));
}

TEST(SqliteStoreTest, ListsTheJobsAroundABrokenOne) {
  const std::string path = NewStorePath();
  ASSERT_OK_AND_ASSIGN(auto store, SqliteStore::Open(path));
  for (const char* id : {"a", "b", "c", "d"}) {
    ASSERT_OK(store->CreateJob(MakeJob(id), ""));
  }
  Execute(path, "UPDATE jobs SET record = x'ffff' WHERE id = 'c'");
  ASSERT_OK_AND_ASSIGN(JobPage page, store->ListJobs(2, 0));
  EXPECT_THAT(Ids(page.jobs), ElementsAre("d"));
  ASSERT_NE(page.next, 0);
  ASSERT_OK_AND_ASSIGN(page, store->ListJobs(2, page.next));
  EXPECT_THAT(Ids(page.jobs), ElementsAre("b", "a"));
  EXPECT_EQ(page.next, 0);
}

}  // namespace
}  // namespace weft::coordinator
