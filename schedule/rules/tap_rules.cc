// Rules over the values that a job taps.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/describe.h"
#include "schedule/plan.h"
#include "schedule/rules/job_rules.h"
#include "schedule/rules/name_globs.h"
#include "schedule/taps.h"
#include "weft/v1/job.pb.h"

namespace weft::schedule {
namespace {

using Finding = std::optional<std::string>;
using Job = v1::TrainingJob;

constexpr int kMaxTaps = 256;
constexpr size_t kMaxTapBytes = 256;

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

// A step with taps runs another program, which nothing reads traces of.
Finding CheckTraceIsOfAPlainStep(const Job& job) {
  const int64_t step = job.output().trace_step();
  if (step == 0 || step != job.output().tap_step()) return {};
  return absl::StrCat("output.trace_step=", step,
                      " is output.tap_step, whose taps take time");
}

Finding CheckTapGlobs(const Job& job) {
  const auto& taps = job.output().taps();
  if (taps.size() > kMaxTaps) {
    return absl::StrCat("output.taps has ", taps.size(), " globs");
  }
  for (int i = 0; i < taps.size(); ++i) {
    if (!taps[i].empty() && taps[i].size() <= kMaxTapBytes) continue;
    return absl::StrCat("output.taps[", i, "] has ", taps[i].size(), " bytes");
  }
  return {};
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
    {"output.taps", "", "up to 256 globs, each of 1 to 256 bytes",
     CheckTapGlobs},
    {"output.trace_step", "output.tap_step",
     "another step than output.tap_step", CheckTraceIsOfAPlainStep},
    {"output.taps", "model,data,parallel,batch",
     "globs of values that `weftctl plan` lists", CheckTaps,
     /*needs_legal_job=*/true},
};

}  // namespace

absl::Span<const RelationRule> TapRules() { return kTapRules; }

}  // namespace weft::schedule
