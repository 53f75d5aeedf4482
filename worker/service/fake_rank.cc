#include "worker/service/fake_rank.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::service {

class FakeEngine : public exec::Engine {
 public:
  explicit FakeEngine(FakeRankFactory* hooks) : hooks_(hooks) {}

  absl::Status RunStep(int64_t step, int64_t control_word,
                       exec::StepResult* result) override {
    RETURN_IF_ERROR(hooks_->on_step(step));
    result->metrics.Clear();
    result->metrics.set_loss(1.0 / step);
    result->metrics.set_tokens(64);
    result->control_word = control_word;
    return absl::OkStatus();
  }

  absl::StatusOr<v1::EvalMetrics> RunEval(int64_t batches) override {
    RETURN_IF_ERROR(hooks_->on_eval());
    v1::EvalMetrics metrics;
    metrics.set_loss(0.5);
    metrics.set_tokens(batches * 64);
    return metrics;
  }

  absl::Status WriteParameters(absl::string_view folder) override {
    return hooks_->on_write();
  }
  absl::Status WriteGradients(absl::string_view folder) override {
    return hooks_->on_write_gradients(std::string(folder));
  }
  absl::Status WriteTaps(absl::string_view folder) override {
    return hooks_->on_write_taps(std::string(folder));
  }
  absl::Status WriteRouting(absl::string_view folder) override {
    return hooks_->on_write_routing(std::string(folder));
  }
  absl::Status FinishRouting() override { return hooks_->on_finish_routing(); }
  absl::Status WriteTrace(const exec::StepResult& result,
                          absl::string_view path) override {
    return hooks_->on_write();
  }

  uint64_t collective_hash() const override { return 11; }
  uint64_t assignment_hash() const override { return 22; }
  int64_t main_weight_bytes() const override { return 33; }
  int64_t live_set_excess_bytes() const override {
    return hooks_->live_set_excess_bytes;
  }

 private:
  FakeRankFactory* const hooks_;
};

class FakeRank : public Rank {
 public:
  FakeRank(FakeRankFactory* hooks, int rank)
      : hooks_(hooks), rank_(rank), engine_(hooks) {
    ++hooks_->created_;
    ++hooks_->alive_;
    MutexLock lock(&hooks_->mu_);
    hooks_->cancel_ = absl::OkStatus();
    hooks_->connected_to_.clear();
  }
  ~FakeRank() override { --hooks_->alive_; }

  absl::StatusOr<Addresses> Open() override {
    RETURN_IF_ERROR(hooks_->on_open());
    return Addresses{absl::StrCat("address-", rank_)};
  }

  absl::Status Connect(const std::vector<Addresses>& ranks) override {
    RETURN_IF_ERROR(hooks_->on_connect());
    MutexLock lock(&hooks_->mu_);
    hooks_->connected_to_ = ranks;
    return absl::OkStatus();
  }

  exec::Engine& engine() override { return engine_; }
  DeviceBytes device_bytes() const override { return {1, 2, 3, 4, 5}; }

  void Cancel(absl::Status why) override {
    hooks_->on_cancel();
    MutexLock lock(&hooks_->mu_);
    if (hooks_->cancel_.ok()) hooks_->cancel_ = std::move(why);
    hooks_->cancelled_.SignalAll();
  }

 private:
  FakeRankFactory* const hooks_;
  const int rank_;
  FakeEngine engine_;
};

std::unique_ptr<Rank> FakeRankFactory::Create(
    const worker::v1::Prepare& prepare) {
  return std::make_unique<FakeRank>(this, prepare.binding().rank());
}

absl::Status FakeRankFactory::BlockUntilCancelled() {
  MutexLock lock(&mu_);
  while (cancel_.ok()) cancelled_.Wait(&mu_);
  return cancel_;
}

std::vector<Addresses> FakeRankFactory::connected_to() const {
  MutexLock lock(&mu_);
  return connected_to_;
}

}  // namespace weft::service
