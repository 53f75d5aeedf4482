// Device memory that a transport's collectives stage data in.
#ifndef WEFT_KERNELS_COMM_CUDA_STAGING_H_
#define WEFT_KERNELS_COMM_CUDA_STAGING_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/device.h"

namespace weft::comm::cuda {

// One piece of memory, which the collectives of one stream use in turn.
//
// The launching thread's.
class Staging {
 public:
  explicit Staging(device::Device* device) : device_(device) {}

  // At least `bytes`. Larger than before: allocates, and waits until the device
  // has nothing to do with the old.
  absl::StatusOr<std::byte*> Get(int64_t bytes);

  void Free() { buffer_.reset(); }

 private:
  device::Device* const device_;
  std::unique_ptr<device::Buffer> buffer_;
};

// False for memory of the host, pinned or not.
bool IsDeviceMemory(const void* pointer);

}  // namespace weft::comm::cuda

#endif  // WEFT_KERNELS_COMM_CUDA_STAGING_H_
