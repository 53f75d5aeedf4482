// A UCX context with the settings that Weft relies on.
#ifndef WEFT_KERNELS_COMM_UCX_UCX_CONTEXT_H_
#define WEFT_KERNELS_COMM_UCX_UCX_CONTEXT_H_

#include <ucp/api/ucp.h>

#include <memory>

#include "absl/status/statusor.h"

namespace weft::comm::ucx {

// Owns a ucp_context_h of tag matching and wake-up.
//
// Settings, each made unless its environment variable is set:
// - UCX_TLS=posix,self,tcp: shared memory on one host, TCP between hosts. Not
//   cma: with it UCX 1.13 reads the memory of peers, and aborts this process
//   when a peer dies or frees what is being read.
// - UCX_TCP_PUT_ENABLE=n: else long messages between processes of one host take
//   TCP rather than shared memory, eight times slower.
// - UCX_POSIX_FIFO_SIZE=256: room for 2 MiB of packets to a worker, so that a
//   sender need not wait for the receiver's thread to run; 64 makes it wait in
//   every message.
// - UCX_LOG_LEVEL=error: UCX warns about each request that an aborted
//   collective leaves behind.
//
// With these, data moves only when its owner calls ucp_worker_progress(): no
// peer and no other thread touches a buffer. The rest of this folder relies on
// it.
//
// Requires: not created before a fork() whose child uses UCX.
// Thread-compatible.
class UcxContext {
 public:
  static absl::StatusOr<std::unique_ptr<UcxContext>> Create();
  ~UcxContext();

  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  ucp_context_h get() const { return context_; }

 private:
  explicit UcxContext(ucp_context_h context) : context_(context) {}

  const ucp_context_h context_;
};

}  // namespace weft::comm::ucx

#endif  // WEFT_KERNELS_COMM_UCX_UCX_CONTEXT_H_
