// One worker process a device of this host: what `--devices` asks for.
#ifndef WEFT_WORKER_SUPERVISE_H_
#define WEFT_WORKER_SUPERVISE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/service/backend.h"
#include "worker/service/supervisor.h"

namespace weft::service {

// The worker's flags, as far as they differ from child to child.
struct SuperviseOptions {
  std::string devices;  // "all", or how many
  std::string device;   // the kind of all of them
  const Backend* backend = nullptr;
  std::string worker_id;  // empty: the host's name
  std::string http_address;
  std::string health_address;  // empty: nowhere
  absl::Duration grace;
};

// How each child is started: `program` with `arguments`, and then what differs.
// `there`: as Backend::CountDevices() counts. Child I is worker ID-I, owns
// device I where devices are not shared, and serves HTTP on the port I above
// that of http_address, or on a free one when it is 0.
//
// INVALID_ARGUMENT, naming flag, value and rule, when there are not so many
// devices, or no such ids and ports.
absl::StatusOr<std::vector<Supervisor::Command>> ChildCommands(
    const SuperviseOptions& options, std::optional<int> there,
    const std::string& program, const std::vector<std::string>& arguments);

// Counts the devices and runs the children until SIGTERM or SIGINT, serving
// their health as one from the start on; this process touches no device. The
// exit code is Supervisor's. Errors as ChildCommands() and
// Backend::CountDevices(), or when health cannot be served.
// Requires: Supervisor::BlockSignals() was called; there is no other thread,
// and the calling one lives as long as the process.
absl::StatusOr<int> Supervise(const SuperviseOptions& options,
                              const std::string& program,
                              const std::vector<std::string>& arguments);

}  // namespace weft::service

#endif  // WEFT_WORKER_SUPERVISE_H_
