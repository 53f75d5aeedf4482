#include "kernels/comm/nccl/nccl_handle.h"

#include <sched.h>

#include <chrono>

#include "absl/memory/memory.h"
#include "base/status_macros.h"
#include "kernels/comm/nccl/nccl_error.h"

namespace weft::comm::nccl {

absl::StatusOr<std::unique_ptr<NcclHandle>> NcclHandle::Create(
    const HandleOptions& options, cuda::Watchdog& watchdog) {
  auto handle = absl::WrapUnique(new NcclHandle(options.name, watchdog));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = handle->name_.c_str();
  absl::Status met;
  {
    MutexLock lock(&handle->mu_);
    const ncclResult_t result = ncclCommInitRankConfig(
        &handle->comm_, options.size, options.id, options.rank, &config);
    met = handle->Settle(result, "meeting the group");
  }
  RETURN_IF_ERROR(met);
  return handle;
}

absl::Status NcclHandle::Settle(ncclResult_t result, const char* what) {
  const auto start = std::chrono::steady_clock::now();
  while (result == ncclInProgress) {
    RETURN_IF_ERROR(watchdog_.CheckWait(start, what));
    ::sched_yield();
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
    if (asked != ncclSuccess) result = asked;
  }
  return ToStatus(result, what, comm_);
}

absl::Status NcclHandle::Call(
    const char* what, absl::FunctionRef<ncclResult_t(ncclComm_t)> call) {
  MutexLock lock(&mu_);
  if (comm_ == nullptr) return absl::CancelledError("aborted");
  return Settle(call(comm_), what);
}

absl::Status NcclHandle::Check() {
  MutexLock lock(&mu_);
  if (comm_ == nullptr) return absl::OkStatus();
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  return ToStatus(asked == ncclSuccess ? state : asked, "running", comm_);
}

void NcclHandle::Abort() {
  MutexLock lock(&mu_);
  if (comm_ == nullptr) return;
  // An error here says no more than the one that led to it.
  (void)ncclCommAbort(comm_);
  comm_ = nullptr;
}

}  // namespace weft::comm::nccl
