#include "model/shape.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/pattern.h"

namespace weft::model {
namespace {

template <typename T>
T Or(T value, T fallback) {
  return value != T() ? value : fallback;
}

DType DTypeOf(v1::NumberFormat format) {
  return format == v1::NUMBER_FORMAT_BF16 ? DType::kBf16 : DType::kF32;
}

}  // namespace

bool Has(const LayerBlocks& blocks, BlockKind kind) {
  return std::find(blocks.begin(), blocks.end(), kind) != blocks.end();
}

int64_t Shape::blocks() const {
  int64_t count = 0;
  for (const LayerBlocks& layer : layers) count += layer.size();
  return count;
}

Shape Shape::Of(int microbatch_index) const {
  Shape shape = *this;
  shape.microbatch = sequences_of(microbatch_index);
  shape.tokens = sequence * shape.microbatch;
  return shape;
}

int64_t Shape::step_tokens() const {
  if (uneven.empty()) return sequence * microbatch * microbatches;
  return sequence * std::accumulate(uneven.begin(), uneven.end(), int64_t{0});
}

double Shape::token_loss_weight() const {
  const int64_t all = token_loss ? step_tokens() : tokens * microbatches;
  return 1.0 / static_cast<double>(all);
}

double Shape::router_loss_weight() const {
  if (!token_loss) return 1.0 / microbatches;
  return static_cast<double>(tokens) / step_tokens();
}

int64_t Shape::max_received_rows() const {
  const int64_t possible = tokens * ep * std::min(top_k, local_experts());
  if (max_rows_factor == 0) return possible;
  // Each rank of the group sends sent_rows(), so a balanced one gets as many.
  const double bound = std::ceil(max_rows_factor * sent_rows());
  return bound < possible ? static_cast<int64_t>(bound) : possible;
}

namespace {

// Requires: the shape's hidden width.
void FillAttention(const v1::ModelConfig& model, Shape* shape) {
  const v1::AttentionConfig& attention = model.attention();
  shape->heads = attention.num_heads();
  shape->kv_heads = Or(attention.num_kv_heads(), attention.num_heads());
  shape->head_dim = attention.head_dim() != 0 ? attention.head_dim()
                                              : shape->hidden / shape->heads;
  shape->qkv_bias = attention.qkv_bias();
  shape->out_bias = attention.output_bias();
  shape->qk_norm = attention.qk_norm();
  shape->rope_theta = Or(attention.rope_theta(), 10000.0);
}

void FillMoe(const v1::MoeConfig& moe, Shape* shape) {
  shape->experts = moe.num_experts();
  shape->top_k = moe.top_k();
  shape->expert_ffn = moe.expert_hidden_size();
  shape->shared_ffn = moe.shared_expert_hidden_size();
  shape->shared_gate = moe.shared_expert_gate();
  shape->max_rows_factor = moe.max_rows_factor();
  const v1::RouterLossConfig& losses = moe.router_loss();
  shape->router_loss = {losses.aux(), losses.sequence_aux(),
                        losses.global_aux(), losses.z()};
  shape->renormalize_top_k =
      moe.top_k_normalization() != v1::TOP_K_NORMALIZATION_RAW;
}

MambaShape MambaOf(const v1::MambaConfig& mamba) {
  MambaShape shape;
  shape.heads = mamba.num_heads();
  shape.head_dim = mamba.head_dim();
  shape.groups = mamba.num_groups();
  shape.state_size = mamba.state_size();
  shape.conv_width = Or(mamba.conv_width(), 4);
  shape.chunk = Or(mamba.chunk_size(), 128);
  shape.conv_bias = !mamba.no_conv_bias();
  shape.projection_bias = mamba.projection_bias();
  shape.dt_min = mamba.time_step_min();
  shape.dt_max = mamba.time_step_max();
  return shape;
}

// Requires: the shape's sequence and world.
void FillBatch(const v1::BatchConfig& batch, Shape* shape) {
  const auto& cut = batch.microbatches();
  if (cut.empty()) {
    shape->microbatch = batch.microbatch();
    shape->microbatches =
        batch.global_batch() / (shape->microbatch * shape->world);
  } else {
    shape->microbatch = *std::max_element(cut.begin(), cut.end());
    shape->microbatches = cut.size();
    if (*std::min_element(cut.begin(), cut.end()) != shape->microbatch) {
      shape->uneven.assign(cut.begin(), cut.end());
    }
  }
  shape->tokens = shape->sequence * shape->microbatch;
}

}  // namespace

Shape ShapeOf(const v1::TrainingJob& job) {
  const v1::ModelConfig& model = job.model();
  Shape shape;
  shape.vocab = model.vocab_size();
  shape.hidden = model.hidden_size();
  if (model.has_attention()) FillAttention(model, &shape);
  shape.ffn = model.ffn_hidden_size();
  shape.gated_mlp = model.mlp_activation() != v1::MLP_ACTIVATION_SQUARED_RELU;
  shape.tie_embeddings = model.tie_embeddings();
  shape.norm_epsilon = Or(model.norm_epsilon(), 1e-5);
  shape.init_std = Or(model.init_std(), 0.02);
  shape.layers = PatternOf(model).layers;
  shape.unit_layers = UnitLayers(job);
  if (model.has_moe()) FillMoe(model.moe(), &shape);
  if (model.has_mamba()) shape.mamba = MambaOf(model.mamba());
  shape.balanced_routing = job.bench().balanced_routing();
  shape.compute_dtype = DTypeOf(job.precision().compute());
  shape.gradient_dtype = DTypeOf(job.precision().gradients());
  shape.sequence = job.data().sequence_length();
  shape.token_loss = job.loss().normalization() == v1::LOSS_NORMALIZATION_TOKEN;
  shape.loss_mask = !job.data().loss_mask_prefix().empty();
  shape.world = job.parallel().world();
  shape.ep = Or(job.parallel().ep(), 1);
  FillBatch(job.batch(), &shape);
  return shape;
}

}  // namespace weft::model
