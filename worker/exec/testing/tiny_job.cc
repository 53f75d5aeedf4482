#include "worker/exec/testing/tiny_job.h"

#include <numeric>

#include "base/hash64.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"

namespace weft::exec::testing {
namespace {

void SetExperts(const TinyJob& tiny, v1::MoeConfig& moe) {
  moe.set_num_experts(tiny.experts);
  moe.set_top_k(2);
  moe.set_expert_hidden_size(12);
  if (tiny.shared_expert) moe.set_shared_expert_hidden_size(8);
  moe.set_shared_expert_gate(tiny.optional_parts && tiny.shared_expert);
  if (tiny.router_losses) {
    moe.mutable_router_loss()->set_aux(0.02);
    moe.mutable_router_loss()->set_sequence_aux(0.01);
    moe.mutable_router_loss()->set_global_aux(0.03);
    moe.mutable_router_loss()->set_z(0.001);
  }
}

void SetModel(const TinyJob& tiny, v1::ModelConfig& model) {
  model.set_vocab_size(29);
  model.set_hidden_size(tiny.hidden);
  model.set_num_layers(tiny.layers);
  model.set_tie_embeddings(tiny.tied);
  model.set_init_std(0.2);
  if (tiny.squared_relu) {
    model.set_mlp_activation(v1::MLP_ACTIVATION_SQUARED_RELU);
  }
  model.mutable_attention()->set_num_heads(4);
  model.mutable_attention()->set_num_kv_heads(2);
  model.mutable_attention()->set_qkv_bias(tiny.optional_parts);
  model.mutable_attention()->set_output_bias(tiny.optional_parts);
  model.mutable_attention()->set_qk_norm(tiny.optional_parts);
  if (tiny.dense_layers > 0) model.set_ffn_hidden_size(20);
  for (int i = 0; i < tiny.dense_layers; ++i) model.add_dense_layers(i);
  SetExperts(tiny, *model.mutable_moe());
}

void SetBatch(const TinyJob& tiny, v1::BatchConfig& batch) {
  if (tiny.uneven.empty()) {
    batch.set_microbatch(tiny.sequences);
    batch.set_global_batch(tiny.sequences * tiny.world * tiny.microbatches);
    return;
  }
  for (int sequences : tiny.uneven) batch.add_microbatches(sequences);
  batch.set_global_batch(
      std::accumulate(tiny.uneven.begin(), tiny.uneven.end(), 0) * tiny.world);
}

}  // namespace

v1::TrainingJob MakeJob(const TinyJob& tiny) {
  v1::TrainingJob job;
  SetModel(tiny, *job.mutable_model());
  job.mutable_data()->set_prefix("synthetic");
  job.mutable_data()->set_sequence_length(tiny.sequence_length);
  if (tiny.loss_mask) job.mutable_data()->set_loss_mask_prefix("synthetic");
  if (tiny.padding_mask) {
    job.mutable_data()->set_padding_mask_prefix("synthetic");
  }
  job.mutable_parallel()->set_world(tiny.world);
  job.mutable_parallel()->set_ep(tiny.ep);
  SetBatch(tiny, *job.mutable_batch());
  if (tiny.token_loss) {
    job.mutable_loss()->set_normalization(v1::LOSS_NORMALIZATION_TOKEN);
  }
  job.mutable_schedule()->set_order(tiny.combined
                                        ? v1::SCHEDULE_ORDER_COMBINED_1F1B
                                        : v1::SCHEDULE_ORDER_SEQUENTIAL);
  job.mutable_schedule()->set_delay_wgrad(tiny.delay_wgrad);
  job.mutable_fsdp()->set_strategy(tiny.strategy);
  job.mutable_fsdp()->set_prefetch_bytes(1);
  job.mutable_precision()->set_compute(tiny.compute);
  job.mutable_precision()->set_gradients(tiny.gradients);
  v1::OptimizerConfig& optimizer = *job.mutable_optimizer();
  optimizer.set_learning_rate(0.01);
  optimizer.set_weight_decay(0.1);
  optimizer.set_clip_norm(1.0);
  job.set_steps(tiny.steps);
  job.set_seed(7);
  job.mutable_eval()->set_batches(tiny.eval_batches);
  google::protobuf::TextFormat::Parser parser;
  CHECK(parser.MergeFromString(tiny.more, &job)) << tiny.more;
  return job;
}

absl::Status SyntheticSamples::Read(data::Split split, int64_t index,
                                    absl::Span<int32_t> tokens) {
  const uint64_t start = Hash64().AddInt(split).AddInt(index).Get();
  int64_t token =
      kind_ == Kind::kConstant ? 5 : static_cast<int64_t>(start % vocab_);
  for (int32_t& out : tokens) {
    out = static_cast<int32_t>(token);
    if (kind_ != Kind::kConstant) token = (3 * token + 1) % vocab_;
  }
  return absl::OkStatus();
}

absl::Status SyntheticSamples::ReadPadding(data::Split split, int64_t index,
                                           absl::Span<int32_t> padding) {
  const size_t valid = padding.size() - index % 3;
  for (size_t i = 0; i < padding.size(); ++i) padding[i] = i >= valid;
  return absl::OkStatus();
}

absl::Status SyntheticSamples::ReadMask(data::Split split, int64_t index,
                                        absl::Span<int32_t> mask) {
  const bool in_gap = kind_ == Kind::kGaps && index / 4 % 3 == 1;
  const bool draws = kind_ == Kind::kRule || kind_ == Kind::kGaps;
  for (size_t i = 0; i < mask.size(); ++i) {
    const uint64_t draw =
        Hash64().AddInt(split).AddInt(index).AddInt(i).Get() >> 32;
    const bool is_drawn = index % 5 != 3 && draw % 2 == 0;
    mask[i] = kind_ == Kind::kConstant || (draws && is_drawn && !in_gap);
  }
  return absl::OkStatus();
}

}  // namespace weft::exec::testing
