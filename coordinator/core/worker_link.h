// The way back to an attached worker.
#ifndef WEFT_COORDINATOR_CORE_WORKER_LINK_H_
#define WEFT_COORDINATOR_CORE_WORKER_LINK_H_

#include "absl/status/status.h"
#include "weft/worker/v1/worker_control_service.pb.h"

namespace weft::coordinator {

// One stream to one worker. Thread-safe. Messages arrive in the order of the
// calls. Both calls return at once and may be made after the stream broke: they
// do nothing then.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;

  virtual void Send(worker::v1::AttachResponse message) = 0;

  // Ends the stream after what was sent; the worker sees `reason`.
  virtual void Close(absl::Status reason) = 0;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_WORKER_LINK_H_
