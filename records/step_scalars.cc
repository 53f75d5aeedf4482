#include "records/step_scalars.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "records/comm_by_cause.h"

namespace weft::records {
namespace {

class Scalars {
 public:
  void Add(std::string tag, double value) {
    scalars_.push_back({std::move(tag), static_cast<float>(value)});
  }

  void AddComm(const CommTime& time) {
    if (time.busy <= 0) return;
    Add(absl::StrCat("comm/", time.cause, " exposed seconds"), time.exposed);
    Add(absl::StrCat("comm/", time.cause, " hidden ratio"),
        time.hidden() / time.busy);
  }

  std::vector<Scalar> Take() { return std::move(scalars_); }

 private:
  std::vector<Scalar> scalars_;
};

}  // namespace

std::vector<Scalar> ScalarsOf(const v1::StepMetrics& step, int64_t sequences) {
  Scalars scalars;
  scalars.Add("lm loss", step.loss());
  scalars.Add("objective", step.objective());
  scalars.Add("learning-rate", step.learning_rate());
  scalars.Add("grad-norm", step.grad_norm());
  scalars.Add("batch-size", sequences);
  scalars.Add("iteration-time", step.step_seconds());
  if (step.step_seconds() > 0) {
    scalars.Add("tokens per second", step.tokens() / step.step_seconds());
  }
  for (const v1::RouterLoss& loss : step.router_losses()) {
    scalars.Add(absl::StrCat("router/", loss.name(), " layer ", loss.layer()),
                loss.value());
  }
  if (step.expert_imbalance() > 0) {
    scalars.Add("router/expert imbalance", step.expert_imbalance());
  }
  for (const CommTime& time : CommByCause(step)) scalars.AddComm(time);
  if (step.peak_device_bytes() > 0) {
    scalars.Add("memory/peak bytes", step.peak_device_bytes());
  }
  for (const v1::MemoryUse& use : step.memory()) {
    scalars.Add(absl::StrCat("memory/", use.category(), " bytes"), use.bytes());
  }
  return scalars.Take();
}

std::vector<Scalar> ScalarsOf(const v1::EvalMetrics& eval) {
  Scalars scalars;
  scalars.Add("lm loss validation", eval.loss());
  return scalars.Take();
}

}  // namespace weft::records
