// Device, Stream, Event and Buffer: what the executor needs from a device.
//
// A backend (cpu/, cuda/) implements these four. Work on a stream runs in
// launch order; work on different streams runs concurrently unless ordered by
// an event. Nothing here allocates after the objects are created.
#ifndef WEFT_KERNELS_DEVICE_DEVICE_H_
#define WEFT_KERNELS_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "kernels/device/backend.h"

namespace weft::device {

// A unit of work. `Launch` makes the stream call it once with `arg`. On the CPU
// it runs on the stream's thread when its turn comes; on CUDA it runs at once
// on the launching thread and enqueues kernels on the stream.
using WorkFn = absl::Status (*)(void* arg, Stream& stream);

// A function of the host in the order of a stream. It calls nothing of the
// device.
using HostFn = void (*)(void* arg);

// A point on a stream that other streams, or the host, can wait for.
//
// May be recorded again and again; a wait refers to the latest record made
// before the wait was called. A never recorded event counts as complete.
// Thread-compatible: record and wait calls are made by one host thread.
class Event {
 public:
  virtual ~Event() = default;

  // Blocks the calling host thread until the latest record has completed, or
  // the device has failed (its first error is returned).
  virtual absl::Status Synchronize() = 0;
};

// An in-order queue of work. All methods are called by one host thread (the
// executor's) and return without waiting, except Synchronize.
class Stream {
 public:
  virtual ~Stream() = default;

  virtual absl::string_view name() const = 0;
  virtual Backend backend() const { return Backend::kCpu; }

  // Enqueues `fn(arg)`. `arg` must stay alive until the work has run. When the
  // device has failed, later work is dropped (events still complete). A work
  // item that returns an error fails the device with that error.
  virtual void Launch(WorkFn fn, void* arg) = 0;

  // Work launched later on this stream starts only after `event` completed.
  virtual void Wait(Event& event) = 0;

  // Completes `event` once all work launched so far on this stream has run.
  virtual void Record(Event& event) = 0;

  // Blocks until the queue is empty; returns the device's first error.
  virtual absl::Status Synchronize() = 0;

  // Called from inside work of this stream: `*ns` becomes the time, in the
  // clock's monotonic nanoseconds, at which what the stream was given so far
  // has run. Written by the end of the next Synchronize() of this stream.
  virtual void Timestamp(Clock& clock, int64_t* ns) {
    *ns = clock.MonotonicNanos();
  }

  // Called from inside work of this stream: `fn(arg)` runs on some thread once
  // what the stream was given so far has run, and what it is given later waits
  // for it, while nobody else does. `arg` stays alive until the next
  // Synchronize() of this stream. Dropped when the device has failed.
  virtual void CallHost(HostFn fn, void* arg) { fn(arg); }

  // Called from inside work of this stream: what is launched in between goes
  // by `label` in the device's profiler. No-ops where it has none.
  virtual void BeginRange(const char* label) {}
  virtual void EndRange() {}
};

// What device memory is used for; memory is accounted by category.
enum class MemoryCategory : uint8_t {
  kParameters = 0,
  kGradients,
  kOptimizer,
  kArena,  // values of the step: activations, gathered buckets, gradients
  kStaging,
};
inline constexpr int kNumMemoryCategories = 5;
// As messages and metrics name it: "parameters", "gradients", ...
const char* Name(MemoryCategory category);

// Owns device memory, freed on destruction. Aligned to 64 bytes at least.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::byte* data() const = 0;
  virtual int64_t bytes() const = 0;
};

// What has happened on a device since its creation.
struct DeviceCounters {
  int64_t allocations = 0;   // of device and host memory
  int64_t host_waits = 0;    // Synchronize() of events and streams
  int64_t host_wait_ns = 0;  // time in them
};

// Owns streams, memory and the first error.
//
// Guarantees: after the first failed work item every stream drains without
// running further work, so no wait hangs on an error. Thread-safe.
class Device {
 public:
  virtual ~Device() = default;

  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream(
      absl::string_view name) = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> CreateEvent() = 0;

  // Zero-filled. RESOURCE_EXHAUSTED, naming category, bytes asked, in use and
  // the limit, when it does not fit the device's memory.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(
      int64_t bytes, MemoryCategory category) = 0;

  // Host memory the device can copy to and from asynchronously.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> AllocateHost(
      int64_t bytes) = 0;

  // Stream-ordered fill of `bytes` at `data` with quiet NaN bit patterns
  // (0xFF bytes: NaN as f32, f64 and bf16; -1 as an integer).
  virtual absl::Status Poison(void* data, int64_t bytes, Stream& stream) = 0;

  // Stream-ordered: hands the whole pages inside [data, data+bytes) back to the
  // system where the backend can (CPU); they read as zero afterwards. A no-op
  // elsewhere.
  virtual absl::Status ReturnPages(void* data, int64_t bytes,
                                   Stream& stream) = 0;

  // Bytes of `buffer` that physical memory backs now (CPU: counted by page;
  // elsewhere its size).
  virtual absl::StatusOr<int64_t> ResidentBytes(const Buffer& buffer) const = 0;

  virtual int64_t bytes_in_use(MemoryCategory category) const = 0;
  virtual int64_t bytes_in_use() const = 0;
  virtual int64_t peak_bytes() const = 0;

  virtual DeviceCounters counters() const = 0;

  // The first error of any work item, or OK.
  virtual absl::Status status() const = 0;

  // Fails the device from outside (cancellation): queued work is dropped.
  // Keeps the first error. Work that is blocked inside (a collective) must be
  // cancelled by its own token.
  virtual void Fail(absl::Status error) = 0;
};

}  // namespace weft::device

#endif  // WEFT_KERNELS_DEVICE_DEVICE_H_
