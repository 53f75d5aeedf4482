// A device that tells when work on its streams has finished.
#ifndef WEFT_WORKER_EXEC_TESTING_OBSERVED_DEVICE_H_
#define WEFT_WORKER_EXEC_TESTING_OBSERVED_DEVICE_H_

#include <functional>
#include <memory>

#include "absl/strings/string_view.h"
#include "kernels/device/device.h"

namespace weft::exec::testing {

// Called on the stream's own thread after each work item.
using FinishedFn = std::function<void(absl::string_view stream)>;

// Wraps `device`: the same but for the calls of `finished`.
std::unique_ptr<device::Device> ObserveDevice(
    std::unique_ptr<device::Device> device, FinishedFn finished);

}  // namespace weft::exec::testing

#endif  // WEFT_WORKER_EXEC_TESTING_OBSERVED_DEVICE_H_
