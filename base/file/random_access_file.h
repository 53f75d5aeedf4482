// A file read at any place.
#ifndef WEFT_BASE_FILE_RANDOM_ACCESS_FILE_H_
#define WEFT_BASE_FILE_RANDOM_ACCESS_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// An open file, whose bytes are read by calls, not through memory: a file that
// somebody cuts while it is open makes a call fail, not the process.
//
// Thread-compatible; const methods are thread-safe.
class RandomAccessFile {
 public:
  // NOT_FOUND, PERMISSION_DENIED and so on, as the system says, with the path;
  // INVALID_ARGUMENT when `path` is not a regular file.
  static absl::StatusOr<RandomAccessFile> Open(const std::string& path);

  RandomAccessFile(RandomAccessFile&& other) noexcept;
  RandomAccessFile& operator=(RandomAccessFile&& other) noexcept;
  ~RandomAccessFile();

  const std::string& path() const { return path_; }
  // In bytes, when it was opened.
  int64_t size() const { return size_; }

  // Reads bytes [begin, begin + size) to `out`. DATA_LOSS when the file ends
  // before that; else as the system says.
  absl::Status Read(int64_t begin, int64_t size, void* out) const;

 private:
  RandomAccessFile(std::string path, int fd, int64_t size);

  std::string path_;
  int fd_;
  int64_t size_;
};

}  // namespace weft

#endif  // WEFT_BASE_FILE_RANDOM_ACCESS_FILE_H_
