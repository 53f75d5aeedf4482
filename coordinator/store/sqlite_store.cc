#include "coordinator/store/sqlite_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "coordinator/core/job_state.h"
#include "coordinator/store/sqlite.h"
#include "glog/logging.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

constexpr int64_t kSchemaVersion = 1;

constexpr char kCreateMeta[] =
    "CREATE TABLE IF NOT EXISTS meta ("
    "  key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID";

constexpr char kCreateSchema[] =
    "CREATE TABLE jobs ("
    "  age INTEGER PRIMARY KEY AUTOINCREMENT,"
    "  id TEXT NOT NULL UNIQUE,"
    "  request_id TEXT UNIQUE,"
    "  finished INTEGER NOT NULL,"
    "  record BLOB NOT NULL);"
    "CREATE INDEX unfinished_jobs ON jobs (age) WHERE finished = 0;"
    "CREATE TABLE updates ("
    "  job_id TEXT NOT NULL,"
    "  revision INTEGER NOT NULL,"
    "  record BLOB NOT NULL,"
    "  PRIMARY KEY (job_id, revision)) WITHOUT ROWID;"
    "INSERT INTO meta VALUES ('schema_version', 1), ('epoch', 0);";

// Of the row of `statement`: column 0 is a Record, column 1 its job's id.
template <typename Record>
absl::StatusOr<Record> Parse(const SqliteStatement& statement,
                             absl::string_view path) {
  Record record;
  if (!record.ParseFromString(statement.Blob(0))) {
    return absl::DataLossError(
        absl::StrCat(path, ": the stored ", record.GetTypeName(), " of job \"",
                     statement.Blob(1), "\" does not parse"));
  }
  return record;
}

// All rows of `statement`, as Parse() wants them.
template <typename Record>
absl::StatusOr<std::vector<Record>> ReadAll(SqliteStatement& statement,
                                            absl::string_view path) {
  std::vector<Record> records;
  while (true) {
    ASSIGN_OR_RETURN(const bool has_row, statement.Next());
    if (!has_row) return records;
    absl::StatusOr<Record> record = Parse<Record>(statement, path);
    if (!record.ok()) {
      statement.Reset();
      return record.status();
    }
    records.push_back(*std::move(record));
  }
}

absl::StatusOr<v1::Job> ReadOne(SqliteStatement& statement,
                                absl::string_view path,
                                absl::string_view missing) {
  ASSIGN_OR_RETURN(std::vector<v1::Job> jobs,
                   ReadAll<v1::Job>(statement, path));
  if (jobs.empty()) return absl::NotFoundError(missing);
  return std::move(jobs[0]);
}

absl::StatusOr<int> TakeLock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot create ", path, ": ", strerror(errno)));
  }
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  const int error = errno;
  close(fd);
  if (error != EWOULDBLOCK) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot lock ", path, ": ", strerror(error)));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      path,
      " is locked: another coordinator uses this store; stop it or "
      "choose another --state_dir"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(
    const std::string& path) {
  ASSIGN_OR_RETURN(const int lock_fd, TakeLock(path + ".lock"));
  absl::StatusOr<std::unique_ptr<SqliteDatabase>> database =
      SqliteDatabase::Open(path);
  if (!database.ok()) {
    close(lock_fd);
    return database.status();
  }
  std::unique_ptr<SqliteStore> store(
      new SqliteStore(path, lock_fd, *std::move(database)));
  MutexLock lock(&store->mu_);
  RETURN_IF_ERROR(store->Migrate());
  return store;
}

SqliteStore::SqliteStore(const std::string& path, int lock_fd,
                         std::unique_ptr<SqliteDatabase> database)
    : path_(path), lock_fd_(lock_fd), database_(std::move(database)) {}

SqliteStore::~SqliteStore() { close(lock_fd_); }

absl::Status SqliteStore::Migrate() {
  RETURN_IF_ERROR(database_->Execute("PRAGMA journal_mode=WAL"));
  RETURN_IF_ERROR(database_->Execute("PRAGMA synchronous=FULL"));
  return database_->Transact([this]() -> absl::Status {
    mu_.AssertHeld();
    RETURN_IF_ERROR(database_->Execute(kCreateMeta));
    ASSIGN_OR_RETURN(
        SqliteStatement * select,
        database_->Prepare(
            "SELECT value FROM meta WHERE key = 'schema_version'"));
    ASSIGN_OR_RETURN(const bool has_row, select->Next());
    if (!has_row) return database_->Execute(kCreateSchema);
    const int64_t version = select->Int(0);
    select->Reset();
    if (version == kSchemaVersion) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " has schema version ", version,
                     "; this coordinator knows ", kSchemaVersion));
  });
}

absl::Status SqliteStore::CreateJob(const v1::Job& job,
                                    absl::string_view request_id) {
  MutexLock lock(&mu_);
  ASSIGN_OR_RETURN(SqliteStatement * insert,
                   database_->Prepare("INSERT INTO jobs (id, request_id, "
                                      "finished, record) VALUES (?, ?, ?, ?)"));
  insert->BindText(1, job.id());
  if (request_id.empty()) {
    insert->BindNull(2);
  } else {
    insert->BindText(2, request_id);
  }
  insert->BindInt(3, IsFinal(job.state()) ? 1 : 0);
  insert->BindBlob(4, job.SerializeAsString());
  return insert->Run();
}

absl::Status SqliteStore::UpdateJob(
    const v1::Job& job, absl::Span<const v1::WatchJobResponse> updates) {
  MutexLock lock(&mu_);
  const bool durable =
      std::any_of(updates.begin(), updates.end(),
                  [](const auto& update) { return update.has_event(); });
  RETURN_IF_ERROR(database_->Execute(durable ? "PRAGMA synchronous=FULL"
                                             : "PRAGMA synchronous=NORMAL"));
  const absl::Status status = database_->Transact([&] {
    mu_.AssertHeld();
    return WriteUpdate(job, updates);
  });
  RETURN_IF_ERROR(database_->Execute("PRAGMA synchronous=FULL"));
  return status;
}

absl::Status SqliteStore::WriteUpdate(
    const v1::Job& job, absl::Span<const v1::WatchJobResponse> updates) {
  ASSIGN_OR_RETURN(SqliteStatement * update,
                   database_->Prepare("UPDATE jobs SET finished = ?, record = "
                                      "? WHERE id = ? RETURNING age"));
  update->BindInt(1, IsFinal(job.state()) ? 1 : 0);
  update->BindBlob(2, job.SerializeAsString());
  update->BindText(3, job.id());
  ASSIGN_OR_RETURN(const bool found, update->Next());
  if (!found) return absl::NotFoundError(absl::StrCat("no job ", job.id()));
  RETURN_IF_ERROR(update->Run());  // past its only row
  ASSIGN_OR_RETURN(
      SqliteStatement * insert,
      database_->Prepare("INSERT OR REPLACE INTO updates VALUES (?, ?, ?)"));
  for (const v1::WatchJobResponse& entry : updates) {
    insert->BindText(1, job.id());
    insert->BindInt(2, entry.revision());
    insert->BindBlob(3, entry.SerializeAsString());
    RETURN_IF_ERROR(insert->Run());
  }
  if (updates.empty()) return absl::OkStatus();
  // Revisions count up by one.
  ASSIGN_OR_RETURN(
      SqliteStatement * forget,
      database_->Prepare(
          "DELETE FROM updates WHERE job_id = ? AND revision <= ?"));
  forget->BindText(1, job.id());
  forget->BindInt(2, updates.back().revision() - kUpdatesKept);
  return forget->Run();
}

absl::StatusOr<v1::Job> SqliteStore::GetJob(absl::string_view job_id) {
  MutexLock lock(&mu_);
  ASSIGN_OR_RETURN(
      SqliteStatement * select,
      database_->Prepare("SELECT record, id FROM jobs WHERE id = ?"));
  select->BindText(1, job_id);
  return ReadOne(*select, path_, absl::StrCat("no job \"", job_id, "\""));
}

absl::StatusOr<v1::Job> SqliteStore::FindByRequestId(
    absl::string_view request_id) {
  MutexLock lock(&mu_);
  ASSIGN_OR_RETURN(
      SqliteStatement * select,
      database_->Prepare("SELECT record, id FROM jobs WHERE request_id = ?"));
  select->BindText(1, request_id);
  return ReadOne(*select, path_,
                 absl::StrCat("no job with request_id \"", request_id, "\""));
}

absl::StatusOr<JobPage> SqliteStore::ListJobs(int limit, int64_t begin) {
  MutexLock lock(&mu_);
  ASSIGN_OR_RETURN(
      SqliteStatement * select,
      database_->Prepare(
          "SELECT record, id, age FROM jobs WHERE ? = 0 OR age <= ? "
          "ORDER BY age DESC LIMIT ?"));
  select->BindInt(1, begin);
  select->BindInt(2, begin);
  select->BindInt(3, int64_t{limit} + 1);
  JobPage page;
  for (int row = 0;; ++row) {
    ASSIGN_OR_RETURN(const bool has_row, select->Next());
    if (!has_row) return page;
    if (row == limit) {
      page.next = select->Int(2);
      select->Reset();
      return page;
    }
    absl::StatusOr<v1::Job> job = Parse<v1::Job>(*select, path_);
    if (job.ok()) {
      page.jobs.push_back(*std::move(job));
    } else {
      LOG(ERROR) << job.status().message() << "; it is not listed";
    }
  }
}

absl::StatusOr<std::vector<v1::Job>> SqliteStore::UnfinishedJobs() {
  MutexLock lock(&mu_);
  ASSIGN_OR_RETURN(
      SqliteStatement * select,
      database_->Prepare(
          "SELECT record, id FROM jobs WHERE finished = 0 ORDER BY age"));
  return ReadAll<v1::Job>(*select, path_);
}

absl::StatusOr<std::vector<v1::WatchJobResponse>> SqliteStore::LatestUpdates(
    absl::string_view job_id, int limit) {
  MutexLock lock(&mu_);
  ASSIGN_OR_RETURN(
      SqliteStatement * select,
      database_->Prepare("SELECT record, job_id FROM updates WHERE job_id = ? "
                         "ORDER BY revision DESC LIMIT ?"));
  select->BindText(1, job_id);
  select->BindInt(2, limit);
  ASSIGN_OR_RETURN(std::vector<v1::WatchJobResponse> updates,
                   ReadAll<v1::WatchJobResponse>(*select, path_));
  std::reverse(updates.begin(), updates.end());
  return updates;
}

absl::StatusOr<int64_t> SqliteStore::NextEpoch() {
  MutexLock lock(&mu_);
  ASSIGN_OR_RETURN(
      SqliteStatement * update,
      database_->Prepare("UPDATE meta SET value = value + 1 WHERE key = "
                         "'epoch' RETURNING value"));
  ASSIGN_OR_RETURN(const bool has_row, update->Next());
  if (!has_row)
    return absl::DataLossError(absl::StrCat(path_, " has no epoch"));
  const int64_t epoch = update->Int(0);
  RETURN_IF_ERROR(update->Run());  // past its only row
  return epoch;
}

}  // namespace weft::coordinator
