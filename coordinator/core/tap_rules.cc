// Rules over the values that a job taps.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "coordinator/core/describe.h"
#include "coordinator/core/job_rules.h"
#include "coordinator/core/name_globs.h"
#include "schedule/plan.h"
#include "schedule/taps.h"
#include "weft/v1/job.pb.h"

namespace weft::coordinator {
namespace {

using Finding = std::optional<std::string>;
using Job = v1::TrainingJob;

Finding CheckTapStep(const Job& job) {
  const int64_t step = job.output().tap_step();
  if (step <= job.steps()) return {};
  return absl::StrCat("output.tap_step=", step, " but steps=", job.steps());
}

Finding CheckTapsAndStep(const Job& job) {
  const v1::OutputConfig& output = job.output();
  if ((output.tap_step() > 0) == (output.taps_size() > 0)) return {};
  if (output.taps_size() > 0) {
    return "output.taps names values, but output.tap_step is not set";
  }
  return absl::StrCat("output.taps is empty, but output.tap_step=",
                      output.tap_step());
}

Finding CheckTaps(const Job& job) {
  if (job.output().taps().empty()) return {};
  const model::ModelDecl model = schedule::Declare(job).model;
  std::vector<std::string> names;
  for (int value : schedule::TappableValues(model)) {
    names.push_back(model.values[value].name);
  }
  for (const std::string& glob : job.output().taps()) {
    if (!schedule::MatchTaps(model, {glob}).empty()) continue;
    return absl::StrCat("output.taps: ", Quoted(glob),
                        " matches no value of the model",
                        NearestGlobs(glob, names));
  }
  return {};
}

constexpr RelationRule kTapRules[] = {
    {"output.tap_step", "steps", "0 to steps", CheckTapStep},
    {"output.taps", "output.tap_step", "given when tap_step is, else empty",
     CheckTapsAndStep},
    {"output.taps", "model,data,parallel,batch",
     "globs of values that `weftctl plan` lists", CheckTaps,
     /*needs_legal_job=*/true},
};

}  // namespace

absl::Span<const RelationRule> TapRules() { return kTapRules; }

}  // namespace weft::coordinator
