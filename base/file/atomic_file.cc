#include "base/file/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr int kMaxLinks = 40;  // as the system follows

// Tells apart the files that one process writes at the same time.
std::atomic<int> next_number{0};

absl::Status SyncFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  std::string folder = ".";
  if (slash != std::string::npos) folder = path.substr(0, slash + 1);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("opening ", folder));
  }
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  // Some file systems keep no folders to sync.
  if (error != 0 && error != EINVAL) {
    return absl::ErrnoToStatus(error, absl::StrCat("syncing ", folder));
  }
  return absl::OkStatus();
}

// What a link at `path` points to.
absl::StatusOr<std::string> ReadLink(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t size = readlink(path.c_str(), target, sizeof(target));
  if (size < 0) return absl::ErrnoToStatus(errno, "reading the link " + path);
  const std::string name(target, static_cast<size_t>(size));
  if (!name.empty() && name[0] == '/') return name;
  return path.substr(0, path.rfind('/') + 1) + name;
}

// Where a file that is named `path` has to be: behind links, which stay, also
// those that lead to nothing yet.
absl::StatusOr<std::string> Resolve(std::string path) {
  const std::string name = path;
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "creating ", path, ": what is there is not a regular file"));
  }
  for (int links = 0; links < kMaxLinks; ++links) {
    if (lstat(path.c_str(), &info) != 0 || !S_ISLNK(info.st_mode)) return path;
    ASSIGN_OR_RETURN(path, ReadLink(path), _ << "creating " << name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("creating ", name, ": its links lead in a circle"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(
    const std::string& name) {
  ASSIGN_OR_RETURN(const std::string path, Resolve(name));
  std::string temporary =
      absl::StrCat(path, ".tmp.", getpid(), ".", next_number.fetch_add(1));
  const int fd =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("creating ", path));
  }
  return absl::WrapUnique(new AtomicFile(path, std::move(temporary), fd));
}

AtomicFile::AtomicFile(std::string path, std::string temporary_path, int fd)
    : path_(std::move(path)),
      temporary_path_(std::move(temporary_path)),
      fd_(fd) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_path_.c_str());
}

absl::Status AtomicFile::Append(absl::string_view bytes) {
  RETURN_IF_ERROR(write_error_);
  if (buffer_.size() + bytes.size() > kBufferBytes) RETURN_IF_ERROR(Flush());
  if (bytes.size() >= kBufferBytes) return WriteThrough(bytes);
  buffer_.append(bytes.data(), bytes.size());
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  RETURN_IF_ERROR(Flush());
  if (fsync(fd_) != 0) return Error(errno, "syncing ");
  if (rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    return Error(errno, "moving into place ");
  }
  close(std::exchange(fd_, -1));
  return SyncFolderOf(path_);
}

absl::Status AtomicFile::Flush() {
  RETURN_IF_ERROR(WriteThrough(buffer_));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status AtomicFile::WriteThrough(absl::string_view bytes) {
  RETURN_IF_ERROR(write_error_);
  while (!bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      write_error_ = Error(errno, "writing ");
      return write_error_;
    }
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Error(int error, absl::string_view doing) const {
  return absl::ErrnoToStatus(error, absl::StrCat(doing, path_));
}

}  // namespace weft
