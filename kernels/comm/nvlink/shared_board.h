// A rank's board in shared memory, where hosts and streams of all ranks reach
// it.
#ifndef WEFT_KERNELS_COMM_NVLINK_SHARED_BOARD_H_
#define WEFT_KERNELS_COMM_NVLINK_SHARED_BOARD_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/comm/nvlink/board.h"
#include "kernels/comm/shared_region.h"

namespace weft::comm::nvlink {

// Pinned for as long as it lives.
class SharedBoard {
 public:
  // The own one, all zeros.
  static absl::StatusOr<std::shared_ptr<SharedBoard>> Create();
  // Another rank's, at its place().
  static absl::StatusOr<std::shared_ptr<SharedBoard>> Open(
      const std::string& place);
  ~SharedBoard();

  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;

  std::string place() const { return region_->place(); }
  Board* host() const { return reinterpret_cast<Board*>(region_->data()); }
  // The same, by the address that streams use.
  Board* device() const { return device_; }

 private:
  explicit SharedBoard(std::unique_ptr<SharedRegion> region)
      : region_(std::move(region)) {}

  static absl::StatusOr<std::shared_ptr<SharedBoard>> Pin(
      std::unique_ptr<SharedRegion> region);

  const std::unique_ptr<SharedRegion> region_;
  Board* device_ = nullptr;  // null until pinned
};

}  // namespace weft::comm::nvlink

#endif  // WEFT_KERNELS_COMM_NVLINK_SHARED_BOARD_H_
