// What a worker has to say to the coordinator, until the stream has taken it.
#ifndef WEFT_WORKER_SERVICE_OUTBOX_H_
#define WEFT_WORKER_SERVICE_OUTBOX_H_

#include <chrono>
#include <deque>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "weft/worker/v1/worker_control_service.pb.h"

namespace weft::service {

// A queue of messages, written by whoever has something to say and read by the
// thread that writes the stream. It is open while a stream is attached.
//
// Guarantees: messages leave in the order they came. What is sent while the box
// is closed is dropped: it was said to a coordinator that is gone.
// Bounded by courtesy: Send() never blocks, and who may send many messages
// calls WaitForRoom() before each.
// Thread-safe.
class Outbox {
 public:
  enum class Event { kMessage, kTimeout, kClosed };

  explicit Outbox(int capacity = 256) : capacity_(capacity) {}

  void Send(worker::v1::AttachRequest message);

  // Waits until fewer than `capacity` messages are queued, or the box is
  // closed. Returns false when the time ran out.
  bool WaitForRoom(absl::Duration timeout);

  // Takes the next message, waiting for it until `deadline`.
  Event Pop(std::chrono::steady_clock::time_point deadline,
            worker::v1::AttachRequest* message);

  // Empties the box and lets it take messages.
  void Open();
  // Empties the box; it drops what comes.
  void Close();
  // Drops what comes, and closes when what is queued has been taken.
  void Drain();

 private:
  const int capacity_;
  Mutex mu_;
  CondVar changed_;
  bool is_open_ ABSL_GUARDED_BY(mu_) = false;
  bool is_draining_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<worker::v1::AttachRequest> messages_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_OUTBOX_H_
