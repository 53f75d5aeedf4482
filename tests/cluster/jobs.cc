#include "tests/cluster/jobs.h"

namespace weft::testing {

v1::TrainingJob MakeJob(const ClusterJob& options) {
  v1::TrainingJob job;
  v1::ModelConfig& model = *job.mutable_model();
  model.set_vocab_size(kVocab);
  model.set_hidden_size(16);
  model.set_num_layers(2);
  model.set_tie_embeddings(options.tied);
  model.set_init_std(0.2);
  model.mutable_attention()->set_num_heads(4);
  model.mutable_attention()->set_num_kv_heads(2);
  v1::MoeConfig& moe = *model.mutable_moe();
  moe.set_num_experts(4);
  moe.set_top_k(2);
  moe.set_expert_hidden_size(12);
  moe.set_shared_expert_hidden_size(8);
  job.mutable_data()->set_prefix(options.data);
  job.mutable_data()->set_sequence_length(12);
  job.mutable_parallel()->set_world(options.world);
  job.mutable_parallel()->set_ep(options.ep);
  job.mutable_batch()->set_microbatch(1);
  job.mutable_batch()->set_global_batch(options.world * options.microbatches);
  job.mutable_schedule()->set_order(options.combined
                                        ? v1::SCHEDULE_ORDER_COMBINED_1F1B
                                        : v1::SCHEDULE_ORDER_SEQUENTIAL);
  job.mutable_schedule()->set_delay_wgrad(options.delay_wgrad);
  job.mutable_fsdp()->set_strategy(
      options.no_shard ? v1::SHARDING_STRATEGY_NO_SHARD
                       : v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS);
  job.mutable_fsdp()->set_prefetch_bytes(1);
  job.mutable_optimizer()->set_learning_rate(0.01);
  job.mutable_optimizer()->set_weight_decay(0.1);
  job.mutable_optimizer()->set_clip_norm(1.0);
  job.mutable_output()->set_final_parameters(true);
  job.set_steps(options.steps);
  job.set_seed(7);
  return job;
}

v1::TrainingJob MakeEndlessJob(const std::string& data) {
  ClusterJob options;
  options.data = data;
  options.ep = 4;
  options.microbatches = 4;
  options.no_shard = true;
  v1::TrainingJob job = MakeJob(options);
  job.mutable_model()->set_hidden_size(256);
  job.mutable_model()->mutable_moe()->clear_shared_expert_hidden_size();
  job.mutable_data()->set_sequence_length(128);
  job.mutable_output()->set_final_parameters(false);
  job.set_steps(1000000);
  return job;
}

}  // namespace weft::testing
