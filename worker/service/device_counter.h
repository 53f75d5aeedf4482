// DeviceCounter: how many devices this machine has, asked without touching
// them.
#ifndef WEFT_WORKER_SERVICE_DEVICE_COUNTER_H_
#define WEFT_WORKER_SERVICE_DEVICE_COUNTER_H_

#include <sys/types.h>

#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "worker/service/backend.h"

namespace weft::service {

// Counts in a short-lived process of its own: a driver that hangs, or that
// keeps files open, does so there.
class DeviceCounter {
 public:
  // Starts that process. Requires: this one has a single thread.
  explicit DeviceCounter(const Backend& backend);
  // Kills it when it has not answered; does not wait for its end.
  ~DeviceCounter();
  DeviceCounter(const DeviceCounter&) = delete;
  DeviceCounter& operator=(const DeviceCounter&) = delete;

  // What Backend::CountDevices() says there. Waits for it, and calls `on_turn`
  // at least every second meanwhile. CANCELLED when SIGTERM or SIGINT comes
  // first. Once.
  // Requires: Supervisor::BlockSignals() was called.
  absl::StatusOr<std::optional<int>> Wait(const std::function<void()>& on_turn);

 private:
  pid_t pid_ = -1;
  int answer_ = -1;  // read end of its pipe
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_DEVICE_COUNTER_H_
