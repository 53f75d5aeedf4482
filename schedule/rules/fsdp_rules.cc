#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/describe.h"
#include "model/pattern.h"
#include "schedule/plan.h"
#include "schedule/rules/job_rules.h"
#include "weft/v1/job.pb.h"

namespace weft::schedule {
namespace {

using Finding = std::optional<std::string>;
using Job = v1::TrainingJob;

bool ShardsParameters(const Job& job) {
  const v1::ShardingStrategy strategy = job.fsdp().strategy();
  return strategy == v1::SHARDING_STRATEGY_UNSPECIFIED ||
         strategy == v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS;
}

Finding CheckSlotsStrategy(const Job& job) {
  if (job.fsdp().buffer_slots() == 0 || ShardsParameters(job)) return {};
  return absl::StrCat(
      "fsdp.buffer_slots=", job.fsdp().buffer_slots(), " but fsdp.strategy=",
      EnumText(*v1::ShardingStrategy_descriptor()->FindValueByNumber(
          job.fsdp().strategy())),
      " keeps whole weights for the step, so that no slot would become free");
}

Finding CheckSlotsSuffice(const Job& job) {
  const int slots = job.fsdp().buffer_slots();
  if (slots == 0) return {};
  const int least = schedule::LeastBufferSlots(schedule::Declare(job));
  if (slots >= least) return {};
  return absl::StrCat("fsdp.buffer_slots=", slots, " but one op reads ", least,
                      " gathered buckets at once");
}

constexpr int kMaxUnitGlobs = 64;
constexpr absl::string_view kUnitSymbols = "M*+-E[";

Finding CheckUnitFilter(const Job& job) {
  const v1::UnitFilter& filter = job.fsdp().unit_filter();
  for (char symbol : filter.symbols()) {
    if (!absl::StrContains(kUnitSymbols, symbol)) {
      return absl::StrCat("fsdp.unit_filter.symbols=\"",
                          Shortened(filter.symbols(), 64), "\" has `",
                          std::string(1, symbol), "`");
    }
  }
  if (filter.layers_size() > kMaxUnitGlobs) {
    return absl::StrCat("fsdp.unit_filter.layers has ", filter.layers_size(),
                        " globs");
  }
  for (int i = 0; i < filter.layers_size(); ++i) {
    const size_t bytes = filter.layers(i).size();
    if (bytes >= 1 && bytes <= 256) continue;
    return absl::StrCat("fsdp.unit_filter.layers[", i, "] has ", bytes,
                        " bytes");
  }
  return {};
}

Finding CheckUnitModules(const Job& job) {
  const auto& modules = job.fsdp().unit_modules();
  if (!modules.empty() && job.fsdp().has_unit_filter()) {
    return "fsdp.unit_modules is set and so is fsdp.unit_filter";
  }
  for (int i = 0; i < modules.size(); ++i) {
    if (v1::UnitModule_IsValid(modules[i]) &&
        modules[i] != v1::UNIT_MODULE_UNSPECIFIED) {
      continue;
    }
    return absl::StrCat("fsdp.unit_modules[", i, "]=", modules[i]);
  }
  return {};
}

// `field` is that of the two which chooses.
Finding CheckSomeUnit(const Job& job, absl::string_view field) {
  const std::vector<bool> units = model::UnitLayers(job);
  if (std::find(units.begin(), units.end(), true) != units.end()) return {};
  return absl::StrCat(field, " selects none of the layers ",
                      model::PatternText(model::PatternOf(job.model())));
}

Finding CheckFilterSelects(const Job& job) {
  if (!job.fsdp().has_unit_filter()) return {};
  return CheckSomeUnit(job, "fsdp.unit_filter");
}

Finding CheckModulesSelect(const Job& job) {
  if (job.fsdp().unit_modules().empty()) return {};
  return CheckSomeUnit(job, "fsdp.unit_modules");
}

// Field, other fields read, what is allowed, check.
constexpr RelationRule kRules[] = {
    {"fsdp.buffer_slots", "fsdp.strategy",
     "0 unless strategy is optim_grads_params", CheckSlotsStrategy},
    {"fsdp.buffer_slots", "model,optimizer.groups",
     "0, or at least the buckets that one op reads", CheckSlotsSuffice,
     /*needs_legal_job=*/true},
    {"fsdp.unit_filter", "",
     "symbols of M*+-E[ and up to 64 globs of 1 to 256 bytes", CheckUnitFilter},
    {"fsdp.unit_modules", "",
     "known modules, and none together with fsdp.unit_filter",
     CheckUnitModules},
    {"fsdp.unit_filter", "model", "a choice of one layer at least",
     CheckFilterSelects, /*needs_legal_job=*/true},
    {"fsdp.unit_modules", "model", "a choice of one layer at least",
     CheckModulesSelect, /*needs_legal_job=*/true},
};

}  // namespace

absl::Span<const RelationRule> FsdpRules() { return kRules; }

}  // namespace weft::schedule
