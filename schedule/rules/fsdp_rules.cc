#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
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

// Field, other fields read, what is allowed, check.
constexpr RelationRule kRules[] = {
    {"fsdp.buffer_slots", "fsdp.strategy",
     "0 unless strategy is optim_grads_params", CheckSlotsStrategy},
    {"fsdp.buffer_slots", "model,optimizer.groups",
     "0, or at least the buckets that one op reads", CheckSlotsSuffice,
     /*needs_legal_job=*/true},
};

}  // namespace

absl::Span<const RelationRule> FsdpRules() { return kRules; }

}  // namespace weft::schedule
