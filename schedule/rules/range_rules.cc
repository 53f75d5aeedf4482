#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/describe.h"
#include "model/pattern.h"
#include "schedule/rules/job_rules.h"

namespace weft::schedule {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr WhenZero kRefused = WhenZero::kRefused;
constexpr WhenZero kDefault = WhenZero::kDefault;
constexpr WhenZero kAbsent = WhenZero::kAbsent;
constexpr WhenZero kValue = WhenZero::kValue;

// Far below any value of use and yet a number in fp32, in which ranks compute:
// what is smaller would vanish there.
constexpr double kTiny = 1e-30;

// Field, meaning of zero, min, max, min excluded, max excluded.
constexpr RangeRule kRangeRules[] = {
    {"model.vocab_size", kRefused, 2, 1048576},
    {"model.hidden_size", kRefused, 1, 65536},
    {"model.num_layers", kAbsent, 1, 1024},
    {"model.ffn_hidden_size", kValue, 0, 1048576},
    {"model.norm_epsilon", kDefault, kTiny, 1, false, true},
    {"model.init_std", kDefault, kTiny, 1},
    {"model.attention.num_heads", kRefused, 1, 1024},
    {"model.attention.num_kv_heads", kDefault, 1, 1024},
    {"model.attention.head_dim", kDefault, 2, 1024},
    {"model.attention.rope_theta", kDefault, 1, kInfinity, true, true},
    {"model.attention.rotary_fraction", kDefault, 0, 1, true},
    {"model.attention.softmax_scale", kDefault, kTiny, 1e30},
    {"model.embedding_multiplier", kDefault, kTiny, 1e30},
    {"model.residual_multiplier", kDefault, kTiny, 1e30},
    {"model.logits_divisor", kDefault, kTiny, 1e30},
    {"model.padding_token", kValue, 0, 1048575},
    {"model.mla.q_lora_rank", kValue, 0, 65536},
    {"model.mla.kv_lora_rank", kRefused, 1, 65536},
    {"model.mla.qk_nope_head_dim", kRefused, 1, 1024},
    {"model.mla.qk_rope_head_dim", kRefused, 2, 1024},
    {"model.mla.v_head_dim", kRefused, 1, 1024},
    {"model.mla.yarn.factor", kRefused, 1, 1000000},
    {"model.mla.yarn.original_positions", kRefused, 1, 1048576},
    {"model.mla.yarn.beta_fast", kDefault, kTiny, 1e6},
    {"model.mla.yarn.beta_slow", kDefault, kTiny, 1e6},
    {"model.mla.yarn.mscale", kValue, 0, 1000},
    {"model.mla.yarn.mscale_all_dim", kValue, 0, 1000},
    {"model.mamba.num_heads", kRefused, 1, 4096},
    {"model.mamba.head_dim", kRefused, 1, 1024},
    {"model.mamba.num_groups", kRefused, 1, 4096},
    {"model.mamba.state_size", kRefused, 1, 1024},
    {"model.mamba.conv_width", kDefault, 2, 16},
    {"model.mamba.chunk_size", kDefault, 1, 1024},
    {"model.mamba.time_step_min", kValue, 0, 1e30},
    {"model.mamba.time_step_max", kDefault, kTiny, 1e30},
    {"model.mtp.depth", kAbsent, 1, 16},
    {"model.mtp.loss_factor", kDefault, kTiny, 1000},
    {"model.moe.num_experts", kRefused, 1, 4096},
    {"model.moe.top_k", kRefused, 1, 4096},
    {"model.moe.expert_hidden_size", kRefused, 1, 1048576},
    {"model.moe.shared_expert_hidden_size", kValue, 0, 1048576},
    {"model.moe.router_loss.aux", kValue, 0, 1000},
    {"model.moe.router_loss.sequence_aux", kValue, 0, 1000},
    {"model.moe.router_loss.global_aux", kValue, 0, 1000},
    {"model.moe.router_loss.z", kValue, 0, 1000},
    {"model.moe.max_rows_factor", kDefault, 1, 65536},
    {"model.moe.scaling_factor", kDefault, kTiny, 1e30},
    {"model.moe.expert_groups.groups", kRefused, 1, 4096},
    {"model.moe.expert_groups.kept", kRefused, 1, 4096},
    {"model.moe.expert_groups.scores", kDefault, 1, 4096},
    {"model.moe.expert_bias.update_rate", kValue, 0, 1},
    {"model.moe.capacity.factor", kRefused, 1e-3, 65536},
    {"data.sequence_length", kRefused, 1, 1048576},
    {"data.validation_fraction", kValue, 0, 0.5},
    {"parallel.world", kRefused, 1, 65536},
    {"parallel.ep", kDefault, 1, 65536},
    {"batch.global_batch", kRefused, 1, 1048576},
    {"batch.microbatch", kAbsent, 1, 65536},
    {"fsdp.prefetch_bytes", kValue, 0, kInfinity},
    {"fsdp.backward_prefetch_bytes", kValue, 0, kInfinity},
    {"fsdp.reduce_bytes", kValue, 0, kInfinity},
    {"fsdp.buffer_slots", kValue, 0, 1024},
    {"optimizer.learning_rate", kRefused, kTiny, 1},
    {"optimizer.min_learning_rate", kValue, 0, 1},
    {"optimizer.warmup_steps", kValue, 0, 100000000},
    {"optimizer.beta1", kValue, 0, 1, false, true},
    {"optimizer.beta2", kValue, 0, 1, false, true},
    {"optimizer.epsilon", kDefault, kTiny, 1e30},
    {"optimizer.weight_decay", kValue, 0, 1},
    {"optimizer.clip_norm", kValue, 0, kInfinity, false, true},
    {"optimizer.momentum", kValue, 0, 1, false, true},
    {"optimizer.wsd_decay_steps", kAbsent, 1, 100000000},
    {"steps", kRefused, 1, 100000000},
    {"eval.every_steps", kValue, 0, 100000000},
    {"eval.batches", kValue, 0, 1000000},
    {"output.trace_step", kValue, 0, 100000000},
    {"output.gradients_step", kValue, 0, 100000000},
    {"output.tap_step", kValue, 0, 100000000},
    {"limits.collective_timeout_ms", kDefault, 100, 3600000},
    {"guards.replica_check_steps", kValue, 0, 100000000},
    {"guards.stuck_parameter_steps", kValue, 0, 100000000},
};

constexpr RequiredMessage kRequiredMessages[] = {
    {"model"},
    {"model.attention", "with attention in some layer",
     [](const v1::TrainingJob& job) {
       return model::HasBlock(job.model(), model::BlockKind::kAttention) ||
              model::HasBlock(job.model(), model::BlockKind::kMla);
     }},
    {"model.mla", "with a `+` in model.pattern",
     [](const v1::TrainingJob& job) {
       return model::HasBlock(job.model(), model::BlockKind::kMla);
     }},
    {"model.mamba", "with an `M` in model.pattern",
     [](const v1::TrainingJob& job) {
       return model::HasBlock(job.model(), model::BlockKind::kMamba);
     }},
    {"model.moe", "with an `E` in model.pattern",
     [](const v1::TrainingJob& job) {
       return model::HasBlock(job.model(), model::BlockKind::kExperts);
     }},
    {"data"},
    {"parallel"},
    {"batch"},
    {"optimizer"},
};

}  // namespace

std::string RangeRule::Allowed() const {
  if (!min_excluded && !max_excluded && max != kInfinity) {
    return absl::StrCat(FormatNumber(min), " to ", FormatNumber(max));
  }
  std::string text =
      absl::StrCat(min_excluded ? "above " : "at least ", FormatNumber(min));
  if (max != kInfinity) {
    absl::StrAppend(&text, max_excluded ? " and below " : " and at most ",
                    FormatNumber(max));
  } else if (max_excluded) {
    absl::StrAppend(&text, " and finite");
  }
  return text;
}

absl::Span<const RangeRule> RangeRules() { return kRangeRules; }

absl::Span<const RequiredMessage> RequiredMessages() {
  return kRequiredMessages;
}

}  // namespace weft::schedule
