#include "base/file/random_access_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft {

absl::StatusOr<RandomAccessFile> RandomAccessFile::Open(
    const std::string& path) {
  // Without O_NONBLOCK the open of a pipe waits for its writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", path));
  RandomAccessFile file(path, fd, 0);
  struct stat info;
  if (fstat(fd, &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("reading ", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("reading ", path, ": not a regular file"));
  }
  file.size_ = info.st_size;
  return file;
}

RandomAccessFile::RandomAccessFile(std::string path, int fd, int64_t size)
    : path_(std::move(path)), fd_(fd), size_(size) {}

RandomAccessFile::RandomAccessFile(RandomAccessFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_) {}

RandomAccessFile& RandomAccessFile::operator=(
    RandomAccessFile&& other) noexcept {
  path_.swap(other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

RandomAccessFile::~RandomAccessFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status RandomAccessFile::Read(int64_t begin, int64_t size,
                                    void* out) const {
  for (int64_t done = 0; done < size;) {
    const ssize_t n =
        pread(fd_, static_cast<char*>(out) + done, size - done, begin + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("reading ", path_));
    }
    if (n == 0) {
      return absl::DataLossError(absl::StrCat(
          path_, ": ends at byte ", begin + done, ", before byte ",
          begin + size, "; it had ", size_, " bytes when it was opened"));
    }
    done += n;
  }
  return absl::OkStatus();
}

}  // namespace weft
