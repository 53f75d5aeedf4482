// The flat array a program is lowered to, and the walk over it.
//
// Entries are plain structs of pointers bound once; walking them looks nothing
// up, allocates nothing and takes no lock of ours. What happens around the work
// of an op on its stream (poison, timestamps, labels for errors) is bound in
// its Launch, so the walk does not know about it.
#ifndef WEFT_WORKER_EXEC_LAUNCH_H_
#define WEFT_WORKER_EXEC_LAUNCH_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "kernels/device/device.h"
#include "worker/exec/engine.h"

namespace weft::exec {

// Memory of the arena.
struct Region {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

// Compares the arena's resident bytes with what may be live at one point.
struct LiveSetCheck {
  const device::Buffer* arena = nullptr;
  int64_t allowed_bytes = 0;
  int64_t* excess_bytes = nullptr;  // largest so far; one per launch
};

// The arena's resident bytes after the work of an op in the last step.
struct ResidentSample {
  const device::Buffer* arena = nullptr;
  int64_t bytes = 0;
};

// The work of one op with everything around it.
struct Launch {
  device::WorkFn work = nullptr;  // null: the op is only a point in the order
  void* arg = nullptr;
  // Looks at what the work left behind; null: nobody does.
  device::WorkFn after = nullptr;
  void* after_arg = nullptr;
  device::Device* device = nullptr;
  // Written for the first time by this op: poisoned before it runs.
  absl::Span<const Region> first_written;
  // Not used by any op any more: poisoned or returned after it ran.
  absl::Span<const Region> dead;
  ReleasedMemory dead_memory = ReleasedMemory::kKeep;
  const LiveSetCheck* check = nullptr;
  ResidentSample* sample = nullptr;  // null: not taken
  // Null: no timestamps.
  Clock* clock = nullptr;
  Span* span = nullptr;
  const char* label = "";                 // "op 12 (F1 layers.0.dispatch, ...)"
  const FailureFn* on_failure = nullptr;  // null: nobody is told
};

// device::WorkFn of a Launch. An error gets its label, fails the device, and is
// told to `on_failure`, in this order.
absl::Status RunLaunch(void* launch, device::Stream& stream);

// Called by the launching thread once its wait is over.
using HostWaitFn = absl::Status (*)(void* arg);

// One step of the walk: a launch on a stream, or, when `stream` is null, a wait
// of the launching thread followed by `host_fn`.
struct Entry {
  device::Stream* stream = nullptr;
  Launch* launch = nullptr;
  absl::Span<device::Event* const> waits;
  device::Event* record = nullptr;  // null: nobody waits for this op
  HostWaitFn host_fn = nullptr;
  void* host_arg = nullptr;
};

// Launches all entries. Returns the error of a host wait or of its function;
// errors of launched work show when the streams are synchronized.
absl::Status Walk(absl::Span<const Entry> entries);

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_LAUNCH_H_
