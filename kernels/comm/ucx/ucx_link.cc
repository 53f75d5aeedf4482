#include "kernels/comm/ucx/ucx_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::comm::ucx {

UcxLink::UcxLink(std::unique_ptr<UcxWorker> worker, LinkOptions options)
    : options_(std::move(options)), worker_(std::move(worker)) {}

void UcxLink::Fail(const absl::Status& error) {
  if (error_.ok()) error_ = error;
  worker_->Abandon();
}

absl::Status UcxLink::CheckUsable(absl::string_view group,
                                  const CollectiveId& id) {
  if (!error_.ok()) {
    return Annotate(error_, absl::StrCat(Describe(group, id, worker_->rank()),
                                         ": transport ", options_.name,
                                         " has failed before"));
  }
  if (options_.cancellation != nullptr && options_.cancellation->cancelled()) {
    const absl::Status cancelled = CancelledError(
        group, id, worker_->rank(), options_.cancellation->reason(), {});
    Fail(cancelled);
    return cancelled;
  }
  return absl::OkStatus();
}

int64_t UcxLink::CountMessages(int64_t bytes) const {
  return bytes == 0 ? 1 : (bytes - 1) / options_.max_message_bytes + 1;
}

int64_t UcxLink::PostRecv(int peer, void* data, int64_t bytes, uint64_t tag) {
  const int64_t count = CountMessages(bytes);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = i * options_.max_message_bytes;
    worker_->PostRecv(peer, static_cast<std::byte*>(data) + at,
                      std::min(bytes - at, options_.max_message_bytes),
                      tag + i);
  }
  return count;
}

int64_t UcxLink::PostSend(int peer, const void* data, int64_t bytes,
                          uint64_t tag) {
  const int64_t count = CountMessages(bytes);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = i * options_.max_message_bytes;
    worker_->PostSend(peer, static_cast<const std::byte*>(data) + at,
                      std::min(bytes - at, options_.max_message_bytes),
                      tag + i);
  }
  return count;
}

absl::Status UcxLink::Finish(absl::string_view group, const CollectiveId& id,
                             UcxWorker::TimePoint deadline) {
  const WaitOutcome outcome = worker_->Wait(deadline, options_.cancellation);
  if (outcome == WaitOutcome::kDone) {
    worker_->End();
    return absl::OkStatus();
  }
  const absl::Status error = ErrorOf(outcome, group, id);
  Fail(error);
  return error;
}

absl::Status UcxLink::ErrorOf(WaitOutcome outcome, absl::string_view group,
                              const CollectiveId& id) const {
  const int rank = worker_->rank();
  switch (outcome) {
    case WaitOutcome::kDone:
      return absl::OkStatus();
    case WaitOutcome::kDeadline:
      return DeadlineError(group, id, rank, options_.deadline,
                           worker_->MissingRanks());
    case WaitOutcome::kCancelled:
      return CancelledError(group, id, rank, options_.cancellation->reason(),
                            worker_->MissingRanks());
    case WaitOutcome::kFailed:
      break;
  }
  return Annotate(worker_->failure(), Describe(group, id, rank));
}

absl::StatusOr<std::byte*> UcxLink::Staging(int64_t bytes) {
  if (staging_ == nullptr || staging_->bytes() < bytes) {
    staging_.reset();  // what it holds is of no use to anybody
    ASSIGN_OR_RETURN(staging_, options_.device->Allocate(
                                   bytes, device::MemoryCategory::kStaging));
  }
  return staging_->data();
}

void UcxLink::Close() {
  if (error_.ok()) {
    error_ = absl::FailedPreconditionError("the transport has been closed");
  }
  worker_->Close();
  staging_.reset();
}

}  // namespace weft::comm::ucx
