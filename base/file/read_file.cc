#include "base/file/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr size_t kPieceBytes = 1 << 16;

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     int64_t max_bytes) {
  // Without O_NONBLOCK the open of a pipe waits for its writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", path));
  const auto closer = absl::MakeCleanup([fd] { close(fd); });
  struct stat info;
  if (fstat(fd, &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("reading ", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("reading ", path, ": not a regular file"));
  }
  std::string bytes;
  while (true) {
    const size_t size = bytes.size();
    if (static_cast<int64_t>(size) > max_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "reading ", path, ": has more than ", max_bytes, " bytes"));
    }
    bytes.resize(size + kPieceBytes);
    const ssize_t n = read(fd, &bytes[size], kPieceBytes);
    const int error = errno;
    bytes.resize(size + (n > 0 ? static_cast<size_t>(n) : 0));
    if (n == 0) return bytes;
    if (n < 0 && error != EINTR) {
      return absl::ErrnoToStatus(error, absl::StrCat("reading ", path));
    }
  }
}

}  // namespace weft
