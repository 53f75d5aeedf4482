// A file's bytes as memory.
#ifndef WEFT_BASE_FILE_MAPPED_FILE_H_
#define WEFT_BASE_FILE_MAPPED_FILE_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

// Maps a whole file for reading. The bytes are paged in when they are read, so
// opening a large file is cheap.
//
// Requires: nobody makes the file shorter while it is mapped; the system ends a
// process that reads beyond the new end. Files written through AtomicFile are
// replaced, never cut.
// Guarantees: the bytes stay where they are when the object moves.
// Thread-compatible; reading the bytes is thread-safe.
class MappedFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED and so on, as the system says, with the path;
  // INVALID_ARGUMENT when `path` is not a regular file.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::string& path() const { return path_; }
  absl::string_view bytes() const {
    return absl::string_view(static_cast<const char*>(data_), size_);
  }

 private:
  MappedFile(std::string path, void* data, size_t size);
  void Unmap();

  std::string path_;
  void* data_ = nullptr;  // null when the file is empty
  size_t size_ = 0;
};

}  // namespace weft

#endif  // WEFT_BASE_FILE_MAPPED_FILE_H_
