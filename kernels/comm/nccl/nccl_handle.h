// One NCCL communicator, used by two threads.
#ifndef WEFT_KERNELS_COMM_NCCL_NCCL_HANDLE_H_
#define WEFT_KERNELS_COMM_NCCL_NCCL_HANDLE_H_

#include <nccl.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "kernels/comm/cuda/watchdog.h"

namespace weft::comm::nccl {

// What a rank brings to its group.
struct HandleOptions {
  std::string name;
  int rank = 0;  // inside the group
  int size = 1;
  ncclUniqueId id;
};

// Its calls never block: they are begun, then asked about until they are done
// or the watchdog has failed. So Abort() never waits long for a call.
//
// Call() is the launching thread's, Check() and Abort() any thread's.
class NcclHandle {
 public:
  // Meets the other ranks of the group, on the device that is current.
  static absl::StatusOr<std::unique_ptr<NcclHandle>> Create(
      const HandleOptions& options, cuda::Watchdog& watchdog);
  // Aborts. What has been enqueued should have run.
  ~NcclHandle() { Abort(); }

  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  // Has `call` enqueue work, and returns when it is enqueued. `what` names it
  // in errors. CANCELLED when aborted, DEADLINE_EXCEEDED when it takes too
  // long.
  absl::Status Call(const char* what,
                    absl::FunctionRef<ncclResult_t(ncclComm_t)> call);

  // An error that NCCL has met on its own threads or on the device.
  absl::Status Check();

  // Ends what runs on the device, and gives back what NCCL has taken.
  void Abort();

 private:
  NcclHandle(std::string name, cuda::Watchdog& watchdog)
      : name_(std::move(name)), watchdog_(watchdog) {}

  // Until `result` is no longer that work is in progress.
  absl::Status Settle(ncclResult_t result, const char* what)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string name_;  // NCCL may keep the pointer
  cuda::Watchdog& watchdog_;
  // Held during a call, so that an abort takes nothing away from it. A call
  // ends soon once the watchdog has failed.
  Mutex mu_;
  ncclComm_t comm_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace weft::comm::nccl

#endif  // WEFT_KERNELS_COMM_NCCL_NCCL_HANDLE_H_
