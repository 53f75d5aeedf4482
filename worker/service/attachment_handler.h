// What an attachment tells the worker.
#ifndef WEFT_WORKER_SERVICE_ATTACHMENT_HANDLER_H_
#define WEFT_WORKER_SERVICE_ATTACHMENT_HANDLER_H_

#include <string>

#include "absl/status/status.h"
#include "weft/worker/v1/worker_control_service.pb.h"

namespace weft::service {

// Called by the thread that reads the stream.
class AttachmentHandler {
 public:
  virtual ~AttachmentHandler() = default;

  // The coordinator has taken the worker, under this id. Returns at once.
  virtual void OnAttached(const std::string& worker_id) = 0;

  // A message other than Registered. Returns at once.
  virtual void OnMessage(const worker::v1::AttachResponse& message) = 0;

  // The stream has ended. May take its time: the next attempt to attach is made
  // after it returns.
  virtual void OnDetached(const absl::Status& why) = 0;
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_ATTACHMENT_HANDLER_H_
