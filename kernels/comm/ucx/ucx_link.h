// What the communicators of one transport share: the worker, staging memory and
// the first error.
#ifndef WEFT_KERNELS_COMM_UCX_UCX_LINK_H_
#define WEFT_KERNELS_COMM_UCX_UCX_LINK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/comm/cancellation.h"
#include "kernels/comm/collective.h"
#include "kernels/comm/ucx/ucx_worker.h"
#include "kernels/device/device.h"

namespace weft::comm::ucx {

struct LinkOptions {
  std::string name;
  absl::Duration deadline;
  Cancellation* cancellation = nullptr;  // may be null
  device::Device* device = nullptr;
  int64_t max_message_bytes = 0;
};

// Posts messages of collectives, cut to size, and turns the ways in which
// waiting for them ends into errors.
//
// One thread at a time.
class UcxLink {
 public:
  UcxLink(std::unique_ptr<UcxWorker> worker, LinkOptions options);

  UcxWorker& worker() { return *worker_; }
  const LinkOptions& options() const { return options_; }

  // The first error, or OK.
  const absl::Status& status() const { return error_; }

  // Keeps the first error, and stops all messages for good.
  void Fail(const absl::Status& error);

  // OK when a collective may start. Else the first error, or why not.
  absl::Status CheckUsable(absl::string_view group, const CollectiveId& id);

  // How many messages `bytes` to one peer travel in.
  int64_t CountMessages(int64_t bytes) const;

  // Posts `bytes` as messages whose tags are `tag`, `tag` + 1, ... Returns the
  // number of tags used, one at least, even for no bytes.
  int64_t PostRecv(int peer, void* data, int64_t bytes, uint64_t tag);
  int64_t PostSend(int peer, const void* data, int64_t bytes, uint64_t tag);

  // Waits for what has been posted since worker().Begin(). An error is kept.
  absl::Status Finish(absl::string_view group, const CollectiveId& id,
                      UcxWorker::TimePoint deadline);

  // Memory of at least `bytes` for received data, the same for all collectives.
  absl::StatusOr<std::byte*> Staging(int64_t bytes);

  // Destroys what belongs to UCX. Collectives fail from now on.
  void Close();

 private:
  absl::Status ErrorOf(WaitOutcome outcome, absl::string_view group,
                       const CollectiveId& id) const;

  const LinkOptions options_;
  std::unique_ptr<device::Buffer> staging_;  // outlives the worker
  const std::unique_ptr<UcxWorker> worker_;
  absl::Status error_;
};

}  // namespace weft::comm::ucx

#endif  // WEFT_KERNELS_COMM_UCX_UCX_LINK_H_
