#include "kernels/comm/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft::comm {

absl::StatusOr<std::unique_ptr<SharedRegion>> SharedRegion::Create(
    int64_t bytes) {
  const int fd = ::memfd_create("weft-shared", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, bytes) != 0) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    return absl::ResourceExhaustedError(
        absl::StrCat("the system gave no shared memory of ", bytes,
                     " bytes (errno ", error, ")"));
  }
  return Map(fd, bytes);
}

absl::StatusOr<std::unique_ptr<SharedRegion>> SharedRegion::Open(
    const std::string& place, int64_t bytes) {
  const std::pair<std::string, std::string> path_and_inode =
      absl::StrSplit(place, absl::MaxSplits('#', 1));
  const auto& [path, inode] = path_and_inode;
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat found = {};
  std::string what;
  if (fd < 0 || ::fstat(fd, &found) != 0) {
    what = std::strerror(errno);
  } else if (absl::StrCat(found.st_ino) != inode || found.st_size != bytes) {
    what = absl::StrCat("what is there has ", found.st_size,
                        " bytes and inode ", found.st_ino);
  }
  if (what.empty()) return Map(fd, bytes);
  if (fd >= 0) ::close(fd);
  return absl::UnavailableError(
      absl::StrCat("no shared memory of ", bytes, " bytes at ", place, ": ",
                   what, "; its process must run on this host, in the same ",
                   "namespace of processes, as the same user"));
}

absl::StatusOr<std::unique_ptr<SharedRegion>> SharedRegion::Map(int fd,
                                                                int64_t bytes) {
  struct stat found = {};
  void* const data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED || ::fstat(fd, &found) != 0) {
    const int error = errno;
    if (data != MAP_FAILED) ::munmap(data, bytes);
    ::close(fd);
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot map ", bytes, " shared bytes (errno ", error, ")"));
  }
  return absl::WrapUnique(
      new SharedRegion(fd, static_cast<std::byte*>(data), bytes, found.st_ino));
}

SharedRegion::~SharedRegion() {
  ::munmap(data_, bytes_);
  ::close(fd_);
}

std::string SharedRegion::place() const {
  return absl::StrCat("/proc/", ::getpid(), "/fd/", fd_, "#", inode_);
}

}  // namespace weft::comm
