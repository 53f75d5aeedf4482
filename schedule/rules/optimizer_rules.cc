#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/describe.h"
#include "base/glob.h"
#include "model/parameter_groups.h"
#include "schedule/plan.h"
#include "schedule/rules/job_rules.h"
#include "schedule/rules/name_globs.h"
#include "weft/v1/job.pb.h"

namespace weft::schedule {
namespace {

using Finding = std::optional<std::string>;
using Job = v1::TrainingJob;

constexpr int kMaxGroups = 64;
constexpr int kMaxPatterns = 256;  // of all groups
constexpr size_t kMaxPatternBytes = 256;

std::string GroupField(int index, const char* field) {
  return absl::StrCat("optimizer.groups[", index, "].", field);
}

// Written so that NaN is outside.
bool IsWithin(double value, double min, double max) {
  return value >= min && value <= max;
}

std::vector<std::string> ParameterNames(const Job& job) {
  std::vector<std::string> names;
  for (const model::ParamDecl& param : schedule::Declare(job).model.params) {
    names.push_back(param.name);
  }
  return names;
}

// The first pattern of a group that no parameter fits.
Finding PatternWithoutMatch(const v1::ParameterGroup& group, int index,
                            const std::vector<std::string>& names) {
  for (const std::string& pattern : group.parameters()) {
    const bool matches = std::any_of(
        names.begin(), names.end(),
        [&](const std::string& name) { return MatchesGlob(pattern, name); });
    if (matches) continue;
    return absl::StrCat(GroupField(index, "parameters"), " has ",
                        Quoted(pattern), ", which no parameter of the model ",
                        "fits", NearestGlobs(pattern, names));
  }
  return {};
}

Finding CheckMinLearningRate(const Job& job) {
  const v1::OptimizerConfig& optimizer = job.optimizer();
  if (optimizer.min_learning_rate() <= optimizer.learning_rate()) return {};
  return absl::StrCat("optimizer.min_learning_rate=",
                      FormatNumber(optimizer.min_learning_rate()),
                      " is above optimizer.learning_rate=",
                      FormatNumber(optimizer.learning_rate()));
}

Finding CheckWarmup(const Job& job) {
  const int64_t warmup = job.optimizer().warmup_steps();
  if (warmup <= job.steps()) return {};
  return absl::StrCat("optimizer.warmup_steps=", warmup,
                      " but steps=", job.steps());
}

Finding CheckMomentum(const Job& job) {
  const v1::OptimizerConfig& optimizer = job.optimizer();
  if (optimizer.momentum() == 0 || optimizer.kind() == v1::OPTIMIZER_KIND_SGD) {
    return {};
  }
  return absl::StrCat("optimizer.momentum=", FormatNumber(optimizer.momentum()),
                      " but optimizer.kind=adamw, whose momentum is beta1");
}

Finding CheckWsdDecaySteps(const Job& job) {
  const v1::OptimizerConfig& optimizer = job.optimizer();
  const int64_t decaying = optimizer.wsd_decay_steps();
  if (optimizer.decay() != v1::DECAY_WSD) {
    if (decaying == 0) return {};
    return absl::StrCat("optimizer.wsd_decay_steps=", decaying,
                        " but optimizer.decay is not wsd");
  }
  const int64_t left = job.steps() - optimizer.warmup_steps();
  if (decaying >= 1 && decaying <= left) return {};
  return absl::StrCat("optimizer.decay=wsd with optimizer.wsd_decay_steps=",
                      decaying, ", steps=", job.steps(),
                      " and optimizer.warmup_steps=", optimizer.warmup_steps());
}

Finding CheckWsdShape(const Job& job) {
  const v1::OptimizerConfig& optimizer = job.optimizer();
  if (optimizer.wsd_shape() == v1::WSD_SHAPE_UNSPECIFIED ||
      optimizer.decay() == v1::DECAY_WSD) {
    return {};
  }
  return "optimizer.wsd_shape is set but optimizer.decay is not wsd";
}

Finding CheckGroupPatterns(const Job& job) {
  const auto& groups = job.optimizer().groups();
  if (groups.size() > kMaxGroups) {
    return absl::StrCat("optimizer.groups has ", groups.size(), " groups");
  }
  int patterns = 0;
  for (int g = 0; g < groups.size(); ++g) {
    patterns += groups[g].parameters_size();
    if (groups[g].parameters().empty()) {
      return absl::StrCat(GroupField(g, "parameters"), " is empty");
    }
    for (const std::string& pattern : groups[g].parameters()) {
      if (!pattern.empty() && pattern.size() <= kMaxPatternBytes) continue;
      return absl::StrCat(GroupField(g, "parameters"), " has ", Quoted(pattern),
                          " of ", pattern.size(), " bytes");
    }
  }
  if (patterns <= kMaxPatterns) return {};
  return absl::StrCat("optimizer.groups has ", patterns, " patterns");
}

Finding CheckGroupValues(const Job& job) {
  const auto& groups = job.optimizer().groups();
  for (int g = 0; g < groups.size(); ++g) {
    const v1::ParameterGroup& group = groups[g];
    if (!IsWithin(group.weight_decay(), 0, 1)) {
      return absl::StrCat(GroupField(g, "weight_decay"), "=",
                          FormatNumber(group.weight_decay()));
    }
    if (!IsWithin(group.learning_rate_scale(), 0, 1000)) {
      return absl::StrCat(GroupField(g, "learning_rate_scale"), "=",
                          FormatNumber(group.learning_rate_scale()));
    }
    if (group.frozen() &&
        (group.has_weight_decay() || group.has_learning_rate_scale())) {
      return absl::StrCat(GroupField(g, "frozen"),
                          "=true, so a weight decay or a scale of the ",
                          "learning rate has no effect there");
    }
  }
  return {};
}

Finding CheckGroupsMatch(const Job& job) {
  const auto& groups = job.optimizer().groups();
  if (groups.empty()) return {};
  const std::vector<std::string> names = ParameterNames(job);
  std::vector<bool> counts(groups.size());  // for some parameter
  for (const std::string& name : names) {
    const int group = model::GroupOf(job.optimizer(), name);
    if (group >= 0) counts[group] = true;
  }
  for (int g = 0; g < groups.size(); ++g) {
    Finding finding = PatternWithoutMatch(groups[g], g, names);
    if (finding.has_value()) return finding;
    if (counts[g]) continue;
    return absl::StrCat("optimizer.groups[", g,
                        "] has no effect: groups before it match all of its ",
                        "parameters");
  }
  return {};
}

Finding CheckSomethingLearns(const Job& job) {
  const auto& groups = job.optimizer().groups();
  if (groups.empty()) return {};
  const std::vector<std::string> names = ParameterNames(job);
  const bool all_frozen =
      std::all_of(names.begin(), names.end(), [&](const std::string& name) {
        const int group = model::GroupOf(job.optimizer(), name);
        return group >= 0 && groups[group].frozen();
      });
  if (!all_frozen) return {};
  return absl::StrCat("all ", names.size(), " parameters are frozen");
}

// Field, other fields read, what is allowed, check.
constexpr RelationRule kRules[] = {
    {"optimizer.min_learning_rate", "optimizer.learning_rate",
     "0 to learning_rate", CheckMinLearningRate},
    {"optimizer.warmup_steps", "steps", "0 to steps", CheckWarmup},
    {"optimizer.momentum", "", "0 unless kind is sgd", CheckMomentum},
    {"optimizer.wsd_decay_steps", "steps,optimizer.warmup_steps",
     "1 to steps - warmup_steps with decay=wsd, else 0", CheckWsdDecaySteps},
    {"optimizer.wsd_shape", "", "unset unless decay is wsd", CheckWsdShape},
    {"optimizer.groups", "",
     "up to 64 groups of up to 256 globs in all, each of 1 to 256 bytes",
     CheckGroupPatterns},
    {"optimizer.groups", "",
     "with a weight_decay of 0 to 1 and a learning_rate_scale of 0 to 1000, or "
     "frozen with neither",
     CheckGroupValues},
    {"optimizer.groups", "model",
     "globs that fit parameters, and groups that count for some",
     CheckGroupsMatch, /*needs_legal_job=*/true},
    {"optimizer.groups", "model", "such that some parameter is not frozen",
     CheckSomethingLearns, /*needs_legal_job=*/true},
};

}  // namespace

absl::Span<const RelationRule> OptimizerRules() { return kRules; }

}  // namespace weft::schedule
