// Attachment: the worker's one stream to the coordinator.
#ifndef WEFT_WORKER_SERVICE_ATTACHMENT_H_
#define WEFT_WORKER_SERVICE_ATTACHMENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "weft/v1/cluster_service.pb.h"
#include "weft/worker/v1/worker_control_service.grpc.pb.h"
#include "weft/worker/v1/worker_control_service.pb.h"
#include "worker/service/attachment_handler.h"
#include "worker/service/backoff.h"
#include "worker/service/outbox.h"

namespace weft::service {

// Keeps the worker attached: opens the stream, registers, writes what comes
// into the outbox and a heartbeat at every interval, hands what it reads to the
// handler, and begins again when the stream breaks.
//
// Two threads: the caller of Run() reads; one of its own writes. The writer
// never waits for a device, so a worker whose device is stuck is still heard.
//
// Locks are taken in the order attachment, outbox.
class Attachment {
 public:
  struct Options {
    std::string coordinator;  // host:port
    // What is said about the worker; the protocol versions are filled in.
    worker::v1::Register identity;
    Outbox* outbox = nullptr;
    AttachmentHandler* handler = nullptr;
    // Asked for every heartbeat.
    std::function<v1::ProcessFigures()> figures;
    Backoff::Options backoff;
    // Longest wait for the answer to Register.
    absl::Duration register_timeout = absl::Seconds(10);
  };

  explicit Attachment(Options options);

  // Stays attached until Shutdown(), and returns OK then. FAILED_PRECONDITION
  // when the coordinator speaks no protocol version of ours, INVALID_ARGUMENT
  // when it refuses what we say of ourselves: attaching again would not help.
  absl::Status Run();

  // Says what is still in the outbox, and detaches; gives up after `patience`.
  // Any thread, once.
  void Shutdown(absl::Duration patience);

 private:
  using Stream = grpc::ClientReaderWriter<worker::v1::AttachRequest,
                                          worker::v1::AttachResponse>;
  struct Connection;

  // One stream, from its first message to its last.
  absl::Status AttachOnce();
  absl::Status ReadAll(Connection& connection);
  absl::Status CheckRegistered(const worker::v1::AttachResponse& answer);
  void WriteAll(Connection& connection);
  // Waits before the next attempt; returns at once when shut down.
  void Pause(absl::Duration delay);
  bool IsShutDown() const;

  const Options options_;
  worker::v1::Register identity_;  // gets the id the coordinator gives
  Backoff backoff_;

  mutable Mutex mu_;
  CondVar changed_;
  bool is_shut_down_ ABSL_GUARDED_BY(mu_) = false;
  bool has_returned_ ABSL_GUARDED_BY(mu_) = false;
  bool is_registered_ ABSL_GUARDED_BY(mu_) = false;
  // Of the stream that is open; null between streams.
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_ATTACHMENT_H_
