#include "schedule/testing/jobs.h"

namespace weft::schedule {

v1::TrainingJob SmallJob(const JobSize& size) {
  v1::TrainingJob job;
  v1::ModelConfig* model = job.mutable_model();
  model->set_vocab_size(32);
  model->set_hidden_size(16);
  model->set_num_layers(size.layers);
  model->set_ffn_hidden_size(24);
  model->mutable_attention()->set_num_heads(4);
  model->mutable_attention()->set_num_kv_heads(2);
  model->mutable_moe()->set_num_experts(4);
  model->mutable_moe()->set_top_k(2);
  model->mutable_moe()->set_expert_hidden_size(8);
  job.mutable_data()->set_prefix("unused");
  job.mutable_data()->set_sequence_length(8);
  job.mutable_parallel()->set_world(size.world);
  job.mutable_parallel()->set_ep(size.ep);
  job.mutable_batch()->set_microbatch(1);
  job.mutable_batch()->set_global_batch(size.microbatches * size.world);
  job.mutable_schedule()->set_order(v1::SCHEDULE_ORDER_COMBINED_1F1B);
  job.mutable_fsdp()->set_prefetch_bytes(1);
  job.mutable_optimizer()->set_learning_rate(1e-3);
  job.set_steps(1);
  return job;
}

v1::TrainingJob LargeJob(int layers, int microbatches) {
  v1::TrainingJob job;
  v1::ModelConfig* model = job.mutable_model();
  model->set_vocab_size(129280);
  model->set_hidden_size(7168);
  model->set_num_layers(layers);
  model->mutable_attention()->set_num_heads(128);
  model->mutable_attention()->set_head_dim(128);
  model->mutable_moe()->set_num_experts(256);
  model->mutable_moe()->set_top_k(8);
  model->mutable_moe()->set_expert_hidden_size(2048);
  model->mutable_moe()->set_shared_expert_hidden_size(2048);
  job.mutable_data()->set_sequence_length(4096);
  job.mutable_parallel()->set_world(2048);
  job.mutable_parallel()->set_ep(64);
  job.mutable_batch()->set_microbatch(1);
  job.mutable_batch()->set_global_batch(2048 * microbatches);
  job.mutable_schedule()->set_delay_wgrad(true);
  return job;
}

}  // namespace weft::schedule
