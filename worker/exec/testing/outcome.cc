#include "worker/exec/testing/outcome.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/exec/testing/local_world.h"

namespace weft::exec::testing {

absl::StatusOr<Outcome> Train(const TinyJob& tiny,
                              SyntheticSamples::Kind samples,
                              const InitialWeights* weights) {
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  options.samples = samples;
  options.initial_weights = weights;
  ASSIGN_OR_RETURN(auto world, LocalWorld::Create(std::move(options)));
  ASSIGN_OR_RETURN(auto results, world->RunSteps(tiny.steps));
  Outcome outcome;
  for (const StepResult& step : results[0]) {
    outcome.losses.push_back(step.metrics.loss());
    outcome.norms.push_back(step.metrics.grad_norm());
    outcome.objectives.push_back(step.metrics.objective());
    for (const v1::RouterLoss& loss : step.metrics.router_losses()) {
      outcome.objectives.push_back(loss.value());
    }
  }
  ASSIGN_OR_RETURN(outcome.parameters, world->Parameters());
  return outcome;
}

std::string Difference(const Outcome& a, const Outcome& b) {
  for (size_t i = 0; i < a.losses.size(); ++i) {
    if (a.losses[i] != b.losses[i]) {
      return absl::StrCat("loss of step ", i + 1, ": ", a.losses[i], " and ",
                          b.losses[i]);
    }
    if (a.norms[i] != b.norms[i]) {
      return absl::StrCat("norm of step ", i + 1, ": ", a.norms[i], " and ",
                          b.norms[i]);
    }
  }
  for (size_t i = 0; i < a.objectives.size(); ++i) {
    if (a.objectives[i] != b.objectives[i]) {
      return absl::StrCat("objective or router loss ", i, ": ", a.objectives[i],
                          " and ", b.objectives[i]);
    }
  }
  for (const auto& [name, values] : a.parameters) {
    const std::vector<float>& others = b.parameters.at(name);
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::memcmp(&values[i], &others[i], sizeof(float)) != 0) {
        return absl::StrCat(name, "[", i, "]: ", values[i], " and ", others[i]);
      }
    }
  }
  return "";
}

}  // namespace weft::exec::testing
