#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/pattern.h"
#include "schedule/rules/job_rules.h"
#include "weft/v1/job.pb.h"

namespace weft::schedule {
namespace {

using Finding = std::optional<std::string>;
using Job = v1::TrainingJob;
using model::BlockKind;

std::string NameOf(const Job& job, int i) {
  const int part = job.schedule().recompute().parts(i);
  return absl::StrCat(
      "schedule.recompute.parts[", i,
      "]=", EnumText(*v1::RecomputePart_descriptor()->FindValueByNumber(part)));
}

Finding CheckPartsOnce(const Job& job) {
  const auto& parts = job.schedule().recompute().parts();
  for (int i = 0; i < parts.size(); ++i) {
    if (!v1::RecomputePart_IsValid(parts[i])) continue;  // refused as unknown
    if (parts[i] == v1::RECOMPUTE_PART_UNSPECIFIED) {
      return absl::StrCat(NameOf(job, i), " is no part");
    }
    const auto first = std::find(parts.begin(), parts.end(), parts[i]);
    if (first - parts.begin() < i) {
      return absl::StrCat(NameOf(job, i), " is there a second time");
    }
  }
  return {};
}

Finding CheckFullAlone(const Job& job) {
  const v1::RecomputeConfig& recompute = job.schedule().recompute();
  if (!recompute.full() || recompute.parts().empty()) return {};
  return absl::StrCat("schedule.recompute.full=true beside ", NameOf(job, 0),
                      ": all of a layer has every part");
}

// What a part is a part of, when no layer has it; else null.
const char* MissingFor(const Job& job, int part) {
  switch (part) {
    case v1::RECOMPUTE_PART_MOE_ACTIVATION:
      return HasBlock(job.model(), BlockKind::kExperts) ? nullptr : "experts";
    case v1::RECOMPUTE_PART_MLA_UP_PROJECTION:
      return HasBlock(job.model(), BlockKind::kMla) ? nullptr
                                                    : "latent attention";
    case v1::RECOMPUTE_PART_ATTENTION_CORE:
      return HasBlock(job.model(), BlockKind::kAttention) ||
                     HasBlock(job.model(), BlockKind::kMla)
                 ? nullptr
                 : "attention";
    case v1::RECOMPUTE_PART_MLP:
      return HasBlock(job.model(), BlockKind::kMlp) ? nullptr
                                                    : "a dense feed-forward";
    case v1::RECOMPUTE_PART_SHARED_EXPERT:
      return HasBlock(job.model(), BlockKind::kExperts) &&
                     job.model().moe().shared_expert_hidden_size() > 0
                 ? nullptr
                 : "a shared expert";
    default:
      return nullptr;
  }
}

Finding CheckPartsExist(const Job& job) {
  const auto& parts = job.schedule().recompute().parts();
  for (int i = 0; i < parts.size(); ++i) {
    const char* const missing = MissingFor(job, parts[i]);
    if (missing == nullptr) continue;
    return absl::StrCat(NameOf(job, i), " but no layer has ", missing);
  }
  return {};
}

constexpr RelationRule kRules[] = {
    {"schedule.recompute.parts", "", "known parts, each at most once",
     CheckPartsOnce},
    {"schedule.recompute.full", "schedule.recompute.parts",
     "false beside parts", CheckFullAlone},
    {"schedule.recompute.parts", "model.num_layers", "parts of some layer",
     CheckPartsExist},
};

}  // namespace

absl::Span<const RelationRule> RecomputeRules() { return kRules; }

}  // namespace weft::schedule
