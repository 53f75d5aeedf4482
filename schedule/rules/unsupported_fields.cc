#include "absl/types/span.h"
#include "schedule/rules/job_rules.h"
#include "weft/v1/job.pb.h"

namespace weft::schedule {
namespace {

constexpr UnsupportedField kUnsupportedFields[] = {
    {"replay_routing"},
    {"model.mtp"},
    {"model.mlp_activation", v1::MLP_ACTIVATION_GELU},
    {"model.moe.score_function", v1::SCORE_FUNCTION_SIGMOID},
    {"model.moe.scaling_factor"},
    {"model.moe.expert_groups"},
    {"model.moe.expert_bias"},
    {"model.moe.capacity"},
    {"model.moe.overlap_shared_expert"},
    {"data.padding_mask_prefix"},
    {"parallel.dispatcher", v1::DISPATCHER_ALLGATHER},
    {"parallel.dispatcher", v1::DISPATCHER_FLEX},
    {"schedule.recompute"},
};

}  // namespace

absl::Span<const UnsupportedField> UnsupportedFields() {
  return kUnsupportedFields;
}

}  // namespace weft::schedule
