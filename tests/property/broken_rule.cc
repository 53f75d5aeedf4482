#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "tests/property/job_layers.h"
#include "tests/property/random_job.h"

namespace weft::tests {
namespace {

bool HasLoss(const v1::RouterLossConfig& loss) {
  return loss.aux() > 0 || loss.sequence_aux() > 0 || loss.global_aux() > 0 ||
         loss.z() > 0;
}

std::string BrokenMoeRule(const v1::MoeConfig& moe) {
  if (moe.top_k() > moe.num_experts()) return "model.moe.top_k";
  if (moe.top_k() == 1 &&
      moe.top_k_normalization() != v1::TOP_K_NORMALIZATION_RAW) {
    return "model.moe.top_k_normalization";
  }
  if (moe.max_rows_factor() != 0 && moe.max_rows_factor() < 1) {
    return "model.moe.max_rows_factor";
  }
  if (moe.shared_expert_gate() && moe.shared_expert_hidden_size() == 0) {
    return "model.moe.shared_expert_gate";
  }
  if (moe.overlap_shared_expert() && moe.shared_expert_hidden_size() == 0) {
    return "model.moe.overlap_shared_expert";
  }
  if (moe.has_expert_groups() &&
      moe.num_experts() % moe.expert_groups().groups() != 0) {
    return "model.moe.expert_groups.groups";
  }
  if (moe.has_expert_bias() &&
      moe.score_function() != v1::SCORE_FUNCTION_SIGMOID) {
    return "model.moe.expert_bias";
  }
  return "";
}

// Latent attention has a few of the fields of attention, and its own.
std::string BrokenAttentionRule(const v1::ModelConfig& model) {
  const v1::AttentionConfig& attention = model.attention();
  const int kv_heads = attention.num_kv_heads();
  if (HasLatent(model) && !HasPlainAttention(model) &&
      ((kv_heads != 0 && kv_heads != attention.num_heads()) ||
       attention.qkv_bias() || attention.output_bias() || attention.qk_norm() ||
       attention.no_rope() || attention.rotary_fraction() != 0)) {
    return "model.attention";
  }
  if (model.has_mla() && model.mla().qk_rope_head_dim() % 2 != 0) {
    return "model.mla.qk_rope_head_dim";
  }
  if (kv_heads != 0 && attention.num_heads() % kv_heads != 0) {
    return "model.attention.num_kv_heads";
  }
  const bool rotates = !attention.no_rope();
  return rotates || attention.rotary_fraction() == 0
             ? ""
             : "model.attention.rotary_fraction";
}

std::string BrokenMambaRule(const v1::MambaConfig& mamba) {
  if (mamba.num_heads() % mamba.num_groups() != 0) {
    return "model.mamba.num_groups";
  }
  const bool ordered = mamba.time_step_max() == 0 ||
                       mamba.time_step_min() <= mamba.time_step_max();
  return ordered ? "" : "model.mamba.time_step_min";
}

std::string BrokenRecomputeRule(const v1::TrainingJob& job) {
  const v1::ModelConfig& model = job.model();
  const v1::RecomputeConfig& recompute = job.schedule().recompute();
  std::set<int> seen;
  for (int part : recompute.parts()) {
    if (!seen.insert(part).second) return "schedule.recompute.parts";
  }
  if (recompute.full() && !seen.empty()) return "schedule.recompute.full";
  const bool experts = HasExperts(model);
  const std::pair<int, bool> has[] = {
      {v1::RECOMPUTE_PART_MOE_ACTIVATION, experts},
      {v1::RECOMPUTE_PART_MLA_UP_PROJECTION, HasLatent(model)},
      {v1::RECOMPUTE_PART_ATTENTION_CORE,
       HasLatent(model) || HasPlainAttention(model)},
      {v1::RECOMPUTE_PART_MLP, HasDense(model)},
      {v1::RECOMPUTE_PART_SHARED_EXPERT,
       experts && model.moe().shared_expert_hidden_size() > 0}};
  for (const auto& [part, exists] : has) {
    if (seen.count(part) > 0 && !exists) return "schedule.recompute.parts";
  }
  return "";
}

std::string BrokenBatchRule(const v1::TrainingJob& job) {
  const v1::BatchConfig& batch = job.batch();
  const int world = job.parallel().world();
  if (batch.microbatches().empty()) {
    const bool whole = batch.global_batch() % (batch.microbatch() * world) == 0;
    return whole ? "" : "batch.global_batch";
  }
  if (batch.microbatch() != 0) return "batch.microbatch";
  const int sum = std::accumulate(batch.microbatches().begin(),
                                  batch.microbatches().end(), 0);
  return sum * world == batch.global_batch() ? "" : "batch.microbatches";
}

}  // namespace

std::string BrokenRule(const v1::TrainingJob& job) {
  const v1::ModelConfig& model = job.model();
  const std::string attention = BrokenAttentionRule(model);
  if (!attention.empty()) return attention;
  if (model.has_mamba()) {
    const std::string mamba = BrokenMambaRule(model.mamba());
    if (!mamba.empty()) return mamba;
  }
  if (model.padding_token() >= model.vocab_size()) return "model.padding_token";
  if (HasDense(model) && model.ffn_hidden_size() == 0) {
    return "model.ffn_hidden_size";
  }
  if (model.mtp().depth() >= job.data().sequence_length()) {
    return "data.sequence_length";
  }
  const std::string moe =
      model.has_moe() ? BrokenMoeRule(model.moe()) : std::string();
  if (!moe.empty()) return moe;
  if (model.moe().has_router_loss() && !HasExperts(model) &&
      HasLoss(model.moe().router_loss())) {
    return "model.moe.router_loss";
  }
  const int ep = job.parallel().ep();
  const bool even = job.parallel().world() % ep == 0 &&
                    (!model.has_moe() || model.moe().num_experts() % ep == 0);
  if (!even || (ep > 1 && !HasExperts(model))) return "parallel.ep";
  if ((job.parallel().dispatcher() == v1::DISPATCHER_ALLGATHER ||
       job.parallel().dispatcher() == v1::DISPATCHER_FLEX) &&
      model.moe().capacity().pad()) {
    return "parallel.dispatcher";
  }
  const std::string batch = BrokenBatchRule(job);
  if (!batch.empty()) return batch;
  const std::string recompute = BrokenRecomputeRule(job);
  if (!recompute.empty()) return recompute;
  if (job.fsdp().buffer_slots() > 0 &&
      job.fsdp().strategy() != v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS) {
    return "fsdp.buffer_slots";
  }
  if (job.eval().batches() > 0 && job.data().validation_fraction() == 0) {
    return "data.validation_fraction";
  }
  if (job.output().routing() && !HasExperts(model)) return "output.routing";
  if (!job.replay_routing().empty() && !HasExperts(model)) {
    return "replay_routing";
  }
  if (job.output().taps_size() > 0 && job.output().tap_step() == 0) {
    return "output.taps";
  }
  return "";
}

}  // namespace weft::tests
