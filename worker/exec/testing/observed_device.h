// A device that tells what happens to it.
#ifndef WEFT_WORKER_EXEC_TESTING_OBSERVED_DEVICE_H_
#define WEFT_WORKER_EXEC_TESTING_OBSERVED_DEVICE_H_

#include <functional>
#include <memory>

#include "absl/strings/string_view.h"
#include "kernels/device/device.h"

namespace weft::exec::testing {

// Any may be empty.
struct DeviceObserver {
  // Called on the stream's own thread after each work item.
  std::function<void(absl::string_view stream)> finished;
  // Called before an event is created.
  std::function<void(device::Device& device)> creates_event;
  // Called with device memory when it has been allocated.
  std::function<void(device::MemoryCategory category, device::Buffer& buffer)>
      allocated;
};

// Wraps `device`: the same but for the calls of the observer.
std::unique_ptr<device::Device> ObserveDevice(
    std::unique_ptr<device::Device> device, DeviceObserver observer);

}  // namespace weft::exec::testing

#endif  // WEFT_WORKER_EXEC_TESTING_OBSERVED_DEVICE_H_
