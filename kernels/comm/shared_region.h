// Memory that processes of one host share.
#ifndef WEFT_KERNELS_COMM_SHARED_REGION_H_
#define WEFT_KERNELS_COMM_SHARED_REGION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft::comm {

// Zero-filled when created. It has no name in a file system, so nothing is left
// of it when the processes that have opened it are gone.
//
// Thread-safe, as far as what it holds is.
class SharedRegion {
 public:
  static absl::StatusOr<std::unique_ptr<SharedRegion>> Create(int64_t bytes);
  // One that another process, or this one, has created with as many bytes and
  // still holds; `place` is its place(). UNAVAILABLE when something else is
  // there: where processes are numbered apart, another may have the number of
  // the one that is meant.
  static absl::StatusOr<std::unique_ptr<SharedRegion>> Open(
      const std::string& place, int64_t bytes);
  ~SharedRegion();

  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // Where processes of the same user open it, and the inode that tells it from
  // what else may be found there. Of one that was created here.
  std::string place() const;

 private:
  SharedRegion(int fd, std::byte* data, int64_t bytes, uint64_t inode)
      : fd_(fd), data_(data), bytes_(bytes), inode_(inode) {}

  static absl::StatusOr<std::unique_ptr<SharedRegion>> Map(int fd,
                                                           int64_t bytes);

  const int fd_;
  std::byte* const data_;
  const int64_t bytes_;
  const uint64_t inode_;
};

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_SHARED_REGION_H_
