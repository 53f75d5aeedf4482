#include "coordinator/store/sqlite.h"

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace weft::coordinator {
namespace {

constexpr int kBusyTimeoutMs = 2000;

absl::StatusCode CodeOf(int result) {
  switch (result & 0xff) {
    case SQLITE_CONSTRAINT:
      return absl::StatusCode::kAlreadyExists;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_NOMEM:
      return absl::StatusCode::kUnavailable;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::StatusCode::kDataLoss;
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status ErrorOf(sqlite3* db, int result, absl::string_view what) {
  const char* path = db == nullptr ? nullptr : sqlite3_db_filename(db, "main");
  return absl::Status(CodeOf(result),
                      absl::StrCat("sqlite: ", path == nullptr ? "" : path,
                                   ": ", what, ": ", sqlite3_errmsg(db)));
}

}  // namespace

void SqliteStatement::BindInt(int parameter, int64_t value) {
  sqlite3_bind_int64(statement_, parameter, value);
}

void SqliteStatement::BindText(int parameter, absl::string_view value) {
  sqlite3_bind_text(statement_, parameter, value.data(), value.size(),
                    SQLITE_TRANSIENT);
}

void SqliteStatement::BindBlob(int parameter, absl::string_view value) {
  sqlite3_bind_blob64(statement_, parameter, value.data(), value.size(),
                      SQLITE_TRANSIENT);
}

void SqliteStatement::BindNull(int parameter) {
  sqlite3_bind_null(statement_, parameter);
}

absl::Status SqliteStatement::Run() {
  ASSIGN_OR_RETURN(const bool has_row, Next());
  if (has_row) Reset();
  return absl::OkStatus();
}

absl::StatusOr<bool> SqliteStatement::Next() {
  const int result = sqlite3_step(statement_);
  if (result == SQLITE_ROW) return true;
  absl::Status status;
  if (result != SQLITE_DONE) {
    status = ErrorOf(db_, result, sqlite3_sql(statement_));
  }
  sqlite3_reset(statement_);
  if (!status.ok()) return status;
  return false;
}

int64_t SqliteStatement::Int(int column) const {
  return sqlite3_column_int64(statement_, column);
}

std::string SqliteStatement::Blob(int column) const {
  const auto* data =
      static_cast<const char*>(sqlite3_column_blob(statement_, column));
  const int size = sqlite3_column_bytes(statement_, column);
  return data == nullptr ? std::string() : std::string(data, size);
}

absl::StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(
    const std::string& path) {
  sqlite3* db = nullptr;
  const int result = sqlite3_open_v2(
      path.c_str(), &db,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
      nullptr);
  std::unique_ptr<SqliteDatabase> database(new SqliteDatabase(db));
  if (result != SQLITE_OK) {
    return ErrorOf(db, result, "opening it");
  }
  sqlite3_busy_timeout(db, kBusyTimeoutMs);
  return database;
}

SqliteDatabase::~SqliteDatabase() {
  statements_.clear();
  sqlite3_close(db_);
}

absl::Status SqliteDatabase::Execute(const char* sql) {
  const int result = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) return ErrorOf(db_, result, sql);
  return absl::OkStatus();
}

absl::StatusOr<SqliteStatement*> SqliteDatabase::Prepare(const char* sql) {
  std::unique_ptr<SqliteStatement>& statement = statements_[sql];
  if (statement == nullptr) {
    sqlite3_stmt* prepared = nullptr;
    const int result = sqlite3_prepare_v2(db_, sql, -1, &prepared, nullptr);
    if (result != SQLITE_OK) return ErrorOf(db_, result, sql);
    statement = std::make_unique<SqliteStatement>(db_, prepared);
  }
  return statement.get();
}

}  // namespace weft::coordinator
