// A rank made of nothing, whose engine does what a test says.
#ifndef WEFT_WORKER_SERVICE_FAKE_RANK_H_
#define WEFT_WORKER_SERVICE_FAKE_RANK_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "worker/exec/engine.h"
#include "worker/service/rank.h"

namespace weft::service {

// Makes fake ranks and sees what happens to them.
//
// By default everything succeeds at once. Set hooks before the first job. A
// hook may call BlockUntilCancelled() to stand for work that does not end.
// Thread-safe.
class FakeRankFactory : public RankFactory {
 public:
  using Hook = std::function<absl::Status()>;
  using StepHook = std::function<absl::Status(int64_t step)>;
  using FolderHook = std::function<absl::Status(const std::string& folder)>;

  Hook on_open = [] { return absl::OkStatus(); };
  Hook on_connect = [] { return absl::OkStatus(); };
  StepHook on_step = [](int64_t) { return absl::OkStatus(); };
  Hook on_eval = [] { return absl::OkStatus(); };
  Hook on_write = [] { return absl::OkStatus(); };
  FolderHook on_write_gradients = [](const std::string&) {
    return absl::OkStatus();
  };
  FolderHook on_write_taps = [](const std::string&) {
    return absl::OkStatus();
  };
  FolderHook on_write_routing = [](const std::string&) {
    return absl::OkStatus();
  };
  Hook on_finish_routing = [] { return absl::OkStatus(); };
  std::function<void()> on_cancel = [] {};

  int64_t live_set_excess_bytes = 0;

  std::unique_ptr<Rank> Create(const worker::v1::Prepare& prepare) override;

  // Returns what the living rank is cancelled with.
  absl::Status BlockUntilCancelled();

  int created() const { return created_.load(); }
  int alive() const { return alive_.load(); }
  std::vector<Addresses> connected_to() const;

 private:
  friend class FakeRank;

  std::atomic<int> created_{0};
  std::atomic<int> alive_{0};
  mutable Mutex mu_;
  CondVar cancelled_;
  absl::Status cancel_ ABSL_GUARDED_BY(mu_);
  std::vector<Addresses> connected_to_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_FAKE_RANK_H_
