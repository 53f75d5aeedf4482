// Streams and events of the CPU device: a stream is a thread with a queue.
#ifndef WEFT_KERNELS_DEVICE_CPU_STREAM_H_
#define WEFT_KERNELS_DEVICE_CPU_STREAM_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "kernels/device/cpu/device_core.h"
#include "kernels/device/device.h"

namespace weft::device::cpu {

// How many commands of one stream have run. A point on a stream is a position:
// it is reached once that many commands have run.
//
// Guarantees: what a command did is seen by whoever saw its position reached.
// Thread-safe.
class Progress : public FailureListener {
 public:
  // Called by the stream's thread when a command has run.
  void Advance();

  // Blocks until `position` is reached.
  void Await(int64_t position);

  // As Await(), but comes back early when `errors` has failed.
  void AwaitUnlessFailed(int64_t position, const ErrorState& errors);

  void OnFailure() override;

 private:
  Mutex mu_;
  CondVar reached_;
  int64_t completed_ ABSL_GUARDED_BY(mu_) = 0;
  // The nearest position that somebody waits for: nobody is woken before it.
  int64_t wake_at_ ABSL_GUARDED_BY(mu_) = std::numeric_limits<int64_t>::max();
};

// The latest recorded point. See device::Event.
class CpuEvent : public Event {
 public:
  explicit CpuEvent(std::shared_ptr<DeviceCore> core)
      : core_(std::move(core)) {}

  absl::Status Synchronize() override;

 private:
  friend class CpuStream;

  const std::shared_ptr<DeviceCore> core_;
  // Shared: the event may outlive the stream it was recorded on. Null until
  // the first record.
  std::shared_ptr<Progress> progress_;
  int64_t position_ = 0;
};

// One thread that runs queued commands in order, and sleeps when there is none.
//
// The queue is a ring that grows, by allocating, only while more commands are
// in flight than ever before. After a failure of the device work is dropped,
// but waits still wait: a position is never reached before the points it
// depends on.
//
// Threads: as device::Stream, and Poison() and ReturnPages() may also be called
// from inside work of this very stream, where they act at once.
class CpuStream : public Stream, public Stoppable {
 public:
  // Starts the thread.
  CpuStream(absl::string_view name, int queue_capacity,
            std::shared_ptr<DeviceCore> core);

  // Runs what is queued, then joins the thread.
  ~CpuStream() override;

  absl::string_view name() const override { return name_; }
  void Launch(WorkFn fn, void* arg) override;
  void Wait(Event& event) override;
  void Record(Event& event) override;
  absl::Status Synchronize() override;

  absl::Status Poison(void* data, int64_t bytes);
  absl::Status ReturnPages(void* data, int64_t bytes);

  // Runs what is queued, then joins the thread. What is launched later is
  // dropped. May be called again.
  void Stop() override;

 private:
  struct Command {
    enum class Kind : uint8_t { kWork, kWait, kPoison, kReturnPages };
    Kind kind = Kind::kWork;
    WorkFn fn = nullptr;
    void* data = nullptr;               // kWork: the argument; else: memory
    int64_t count = 0;                  // kWait: a position; else: bytes
    std::shared_ptr<Progress> awaited;  // kWait only
  };

  void Push(Command command);
  void GrowLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Blocks for the next command. Returns false when the stream has stopped.
  bool Pop(Command* command);
  void Run();
  absl::Status Execute(const Command& command);
  bool OnOwnThread() const;

  const std::string name_;
  const std::shared_ptr<DeviceCore> core_;
  // Shared with the events recorded on this stream and the waits for them.
  const std::shared_ptr<Progress> progress_;

  Mutex mu_;
  CondVar not_empty_;
  std::vector<Command> ring_ ABSL_GUARDED_BY(mu_);
  int64_t head_ ABSL_GUARDED_BY(mu_) = 0;    // commands taken so far
  int64_t pushed_ ABSL_GUARDED_BY(mu_) = 0;  // commands pushed so far
  bool is_idle_ ABSL_GUARDED_BY(mu_) = false;
  bool is_stopping_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;  // last: it uses everything above
};

}  // namespace weft::device::cpu

#endif  // WEFT_KERNELS_DEVICE_CPU_STREAM_H_
