// The thread that ends collectives which would wait forever.
#ifndef WEFT_KERNELS_COMM_CUDA_WATCHDOG_H_
#define WEFT_KERNELS_COMM_CUDA_WATCHDOG_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "kernels/comm/cancellation.h"
#include "kernels/comm/collective.h"
#include "kernels/comm/cuda/progress.h"
#include "kernels/device/device.h"

namespace weft::comm::cuda {

// A communicator as the watchdog sees it. Called by its thread.
class Watched {
 public:
  virtual ~Watched() = default;
  virtual absl::string_view group() const = 0;
  virtual std::optional<PendingCollective> Oldest(SteadyTime now) = 0;
  // Peers whose part of a collective that has not run is missing, where the
  // transport knows.
  virtual std::vector<int> MissingRanks() = 0;
  // An error that the transport has met by itself.
  virtual absl::Status CheckTransport() = 0;
  // Ends what waits on the device for peers, now and later, once the device has
  // failed. May be called again.
  virtual void Abort() = 0;
};

// Watches the communicators of one transport. When a collective has not run
// within the deadline, the token fires, or the transport fails, it keeps the
// error, fails the device with it, and aborts all communicators.
//
// Thread-safe.
class Watchdog {
 public:
  struct Options {
    std::string transport;
    int rank = 0;  // in the world
    // From when a collective was enqueued, or the one before it had run.
    absl::Duration deadline;
    Cancellation* cancellation = nullptr;  // borrowed; may be null
    device::Device* device = nullptr;      // borrowed
  };

  static absl::StatusOr<std::unique_ptr<Watchdog>> Create(Options options);
  ~Watchdog();

  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  const Options& options() const { return options_; }

  void Add(Watched* watched);
  // When it returns, `watched` is not being called and will not be.
  void Remove(Watched* watched);

  // The first error, or OK.
  absl::Status status() const;
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  // OK when a collective may start. Else the first error, or why not.
  absl::Status CheckUsable(absl::string_view group, const CollectiveId& id);

  // OK as long as a host may go on with a wait that began at `start`. Else the
  // first error, or why not; `what` is what it waits for.
  absl::Status CheckWait(SteadyTime start, absl::string_view what) const;

  // Keeps the first error, fails the device and has all aborted.
  void Fail(const absl::Status& error);

  // Collectives are refused from now on, and nothing is watched. The device
  // does not fail, and is not used any more.
  void Close();

 private:
  Watchdog(Options options, int wake_fd);

  // Returns whether `error` is the first.
  bool Keep(const absl::Status& error);
  void Wake();
  void Run();
  void Sleep() const;
  void LookAtAll();
  absl::Status Look(Watched& watched, SteadyTime now);
  bool IsCancelled() const;

  const Options options_;
  const int wake_fd_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> stopping_{false};
  mutable Mutex error_mu_;  // taken alone or after watched_mu_
  absl::Status error_ ABSL_GUARDED_BY(error_mu_);
  // Held while communicators are called.
  Mutex watched_mu_;
  std::vector<Watched*> watched_ ABSL_GUARDED_BY(watched_mu_);
  std::thread thread_;  // last: it uses everything above
};

}  // namespace weft::comm::cuda

#endif  // WEFT_KERNELS_COMM_CUDA_WATCHDOG_H_
