#include "records/step_scalars.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft::records {
namespace {

class Scalars {
 public:
  void Add(std::string tag, double value) {
    scalars_.push_back({std::move(tag), static_cast<float>(value)});
  }

  // Communication of one cause, and the part of it that compute hid.
  void AddCause(const char* cause, double busy, double exposed) {
    if (busy <= 0) return;
    Add(absl::StrCat("comm/", cause, " exposed seconds"), exposed);
    Add(absl::StrCat("comm/", cause, " hidden ratio"), 1 - exposed / busy);
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
  scalars.AddCause("ep", step.ep_seconds(), step.ep_exposed_seconds());
  scalars.AddCause("gather", step.gather_seconds(),
                   step.gather_exposed_seconds());
  scalars.AddCause("reduce", step.fsdp_seconds() - step.gather_seconds(),
                   step.fsdp_exposed_seconds() - step.gather_exposed_seconds());
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
