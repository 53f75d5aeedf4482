// HostPool: many small pieces of host memory that the device can use.
#ifndef WEFT_WORKER_EXEC_HOST_POOL_H_
#define WEFT_WORKER_EXEC_HOST_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device/device.h"

namespace weft::exec {

// Takes memory from the device in large chunks, for a device may need long for
// each. Frees all of it when it goes. Not thread-safe.
class HostPool {
 public:
  explicit HostPool(device::Device* device) : device_(device) {}

  // Zeroed, aligned to 64 bytes. Errors are those of Device::AllocateHost.
  absl::StatusOr<std::byte*> Take(int64_t bytes);

  // `count` elements.
  template <typename T>
  absl::StatusOr<T*> TakeArray(int64_t count) {
    absl::StatusOr<std::byte*> data =
        Take(count * static_cast<int64_t>(sizeof(T)));
    if (!data.ok()) return data.status();
    return reinterpret_cast<T*>(*data);
  }

 private:
  device::Device* const device_;
  std::vector<std::unique_ptr<device::Buffer>> chunks_;
  int64_t used_ = 0;  // of the last chunk
};

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_HOST_POOL_H_
