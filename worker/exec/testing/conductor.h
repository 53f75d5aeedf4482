// Conductor: runs the work of all devices of a world one piece at a time, in an
// order that a seed draws.
//
// Each piece of work waits for a random delay before it starts, on a clock that
// only counts; the one whose time comes first runs. Delays have a heavy tail,
// and whole streams and ranks are slow now and then, so that an op runs as
// early, or as late, as the order of streams and the waits allow. Nothing
// sleeps, and a world in which nothing can go on is told at once.
//
//   Conductor conductor(/*seed=*/1);
//   options.wrap_device = [&](auto device) {
//     return conductor.Wrap(std::move(device));
//   };
//   options.interceptor = [&](absl::string_view group, auto& tag, int rank) {
//     conductor.AtCollective(key_of_the_group, its_size);
//     return absl::OkStatus();
//   };
//   conductor.set_on_stuck([&] { /* make collectives that wait return */ });
//   ... create all ranks on one thread ...
//   conductor.HostsBegin(ranks);  // then one thread a rank, each ending with
//   conductor.HostDone();
#ifndef WEFT_WORKER_EXEC_TESTING_CONDUCTOR_H_
#define WEFT_WORKER_EXEC_TESTING_CONDUCTOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "kernels/device/device.h"

namespace weft::exec::testing {

// Guarantees: work runs in the order of its stream and after the events its
// stream waits for; at most one piece of work runs at a time, but for members
// of one collective, which run together once all have come.
// Thread-safe; outlives the devices it wraps.
class Conductor {
 public:
  explicit Conductor(uint64_t seed) : random_(seed) {}

  // Draws new delays, and new slow streams, from here on.
  void Reseed(uint64_t seed);

  // A device whose memory is that of `memory` and whose streams take turns.
  std::unique_ptr<device::Device> Wrap(std::unique_ptr<device::Device> memory);

  // Called by work before it waits for the other members of a collective of
  // `size` ranks in the group named `group`.
  void AtCollective(const std::string& group, int size);

  // Called, on any thread, when every launching thread waits and nothing can go
  // on: once until the next HostsBegin().
  void set_on_stuck(std::function<void()> fn) { on_stuck_ = std::move(fn); }

  // Launching threads that run now; before this there is one. Nothing starts
  // while one of them runs.
  void HostsBegin(int hosts);
  void HostDone();

 private:
  friend class ConductedDevice;
  friend class ConductedStream;
  friend class ConductedEvent;

  struct Stream;

  // Work, or, when `awaited` is set, a wait for a position of that stream.
  struct Item {
    device::WorkFn fn = nullptr;
    void* arg = nullptr;
    const Stream* awaited = nullptr;
    int64_t position = 0;
  };

  struct Device {
    absl::Status error;  // the first
  };

  struct Stream {
    enum class State : uint8_t { kIdle, kGranted, kRunning, kInCollective };
    Device* device = nullptr;
    device::Stream* face = nullptr;
    std::deque<Item> items;
    int64_t pushed = 0;
    int64_t completed = 0;
    State state = State::kIdle;
    std::thread::id thread;  // when running
    bool stopping = false;
    int slowness = 0;  // delays are this many times doubled
    bool drawn = false;
    int64_t start = 0;  // when `drawn`: of the first item
    CondVar turn;
  };

  // A launching thread that waits.
  struct HostWait {
    const Device* device = nullptr;
    const Stream* stream = nullptr;
    int64_t position = 0;
    bool until_failure = false;  // a failure of the device ends it, too
    bool done = false;
  };

  void Register(Stream* stream);
  void Unregister(Stream* stream);
  void Push(Stream* stream, const Item& item);
  // Of a stream's thread: runs work until the stream stops.
  void Run(Stream* stream);
  // Returns when `wait` is over, with the device's error.
  absl::Status Await(HostWait wait);
  void Fail(Device* device, const absl::Status& error);
  absl::Status StatusOf(const Device* device);

  // Starts what is to start next. Returns true when nothing can go on.
  bool TurnLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AdvanceLocked(Stream* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WakeHostsLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t DelayLocked(const Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void FinishLocked(Stream* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TellIf(bool stuck);

  std::function<void()> on_stuck_;

  Mutex mu_;
  CondVar host_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mu_);
  std::vector<Stream*> streams_ ABSL_GUARDED_BY(mu_);
  std::vector<HostWait*> host_waits_ ABSL_GUARDED_BY(mu_);
  // By group: streams that have come to its next collective.
  std::map<std::string, std::vector<Stream*>> meetings_ ABSL_GUARDED_BY(mu_);
  int hosts_running_ ABSL_GUARDED_BY(mu_) = 1;
  int works_running_ ABSL_GUARDED_BY(mu_) = 0;
  bool told_stuck_ ABSL_GUARDED_BY(mu_) = false;
  int64_t now_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace weft::exec::testing

#endif  // WEFT_WORKER_EXEC_TESTING_CONDUCTOR_H_
