// SQLite as statuses: a connection, its prepared statements, transactions.
//
//   ASSIGN_OR_RETURN(auto database, SqliteDatabase::Open("/var/lib/x.db"));
//   ASSIGN_OR_RETURN(SqliteStatement * insert,
//                    database->Prepare("INSERT INTO t VALUES (?, ?)"));
//   insert->BindInt(1, 7);
//   insert->BindBlob(2, record);
//   RETURN_IF_ERROR(insert->Run());
#ifndef WEFT_COORDINATOR_STORE_SQLITE_H_
#define WEFT_COORDINATOR_STORE_SQLITE_H_

#include <sqlite3.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::coordinator {

// A prepared statement. Parameters and columns are numbered from 1 and 0.
// Parameters stay bound until bound again. Not thread-safe.
class SqliteStatement {
 public:
  SqliteStatement(sqlite3* db, sqlite3_stmt* statement)
      : db_(db), statement_(statement) {}
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;
  ~SqliteStatement() { sqlite3_finalize(statement_); }

  void BindInt(int parameter, int64_t value);
  void BindText(int parameter, absl::string_view value);
  void BindBlob(int parameter, absl::string_view value);
  void BindNull(int parameter);

  // Runs a statement that yields no rows.
  absl::Status Run();
  // Steps to the next row; false at the end. After false or an error the
  // statement is ready to run again.
  absl::StatusOr<bool> Next();
  // Leaves the rows not read yet.
  void Reset() { sqlite3_reset(statement_); }

  int64_t Int(int column) const;
  std::string Blob(int column) const;

 private:
  sqlite3* const db_;
  sqlite3_stmt* const statement_;
};

// A connection. Not thread-safe.
class SqliteDatabase {
 public:
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> Open(
      const std::string& path);
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;
  ~SqliteDatabase();

  // Runs statements that yield no rows or whose rows do not matter.
  absl::Status Execute(const char* sql);
  // Prepares `sql` once; later calls with the same text return the same
  // statement, which lives as long as the database.
  absl::StatusOr<SqliteStatement*> Prepare(const char* sql);
  // Runs `body` in a transaction: all of it happens, or nothing when `body`
  // returns an error.
  template <typename Body>
  absl::Status Transact(Body body);

 private:
  explicit SqliteDatabase(sqlite3* db) : db_(db) {}

  sqlite3* const db_;
  std::map<std::string, std::unique_ptr<SqliteStatement>> statements_;
};

template <typename Body>
absl::Status SqliteDatabase::Transact(Body body) {
  absl::Status status = Execute("BEGIN IMMEDIATE");
  if (!status.ok()) return status;
  status = body();
  if (status.ok()) status = Execute("COMMIT");
  if (!status.ok()) Execute("ROLLBACK").IgnoreError();
  return status;
}

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_STORE_SQLITE_H_
