// A file that appears under its name complete or not at all.
#ifndef WEFT_BASE_FILE_ATOMIC_FILE_H_
#define WEFT_BASE_FILE_ATOMIC_FILE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// Writes a file from front to back beside its final place, and moves it there
// when it is complete and on disk.
//
//   ASSIGN_OR_RETURN(auto file, AtomicFile::Create(path));
//   RETURN_IF_ERROR(file->Append(header));
//   RETURN_IF_ERROR(file->Append(body));
//   return file->Commit();
//
// Guarantees: `path` holds what it held before, or all that was appended. After
// Commit() returns OK it holds the latter, also when the machine stops. A file
// that is not committed leaves nothing behind, unless the process is killed:
// then a file whose name begins with that of `path` and ".tmp" stays. When
// `path` is a symbolic link, all this is about what it leads to.
// Errors are those of the system (NOT_FOUND, RESOURCE_EXHAUSTED and so on) and
// name the path.
// Thread-compatible.
class AtomicFile {
 public:
  // INVALID_ARGUMENT when something else than a regular file is at `path`, such
  // as a folder, a pipe or a device, or it is a link of a circle. Requires: the
  // folder exists.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(
      const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Once it has failed, later calls and Commit() return the same error.
  absl::Status Append(absl::string_view bytes);

  // Call it once, last.
  absl::Status Commit();

 private:
  AtomicFile(std::string path, std::string temporary_path, int fd);

  absl::Status Flush();
  absl::Status WriteThrough(absl::string_view bytes);
  absl::Status Error(int error, absl::string_view doing) const;

  const std::string path_;
  const std::string temporary_path_;
  int fd_;
  std::string buffer_;
  absl::Status write_error_;  // the first
};

}  // namespace weft

#endif  // WEFT_BASE_FILE_ATOMIC_FILE_H_
