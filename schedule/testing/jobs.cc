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

}  // namespace weft::schedule
