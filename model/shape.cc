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

Activation ActivationOf(v1::MlpActivation activation) {
  switch (activation) {
    case v1::MLP_ACTIVATION_SQUARED_RELU:
      return Activation::kSquaredRelu;
    case v1::MLP_ACTIVATION_GELU:
      return Activation::kGelu;
    default:
      return Activation::kSwiglu;
  }
}

DType DTypeOf(v1::NumberFormat format) {
  return format == v1::NUMBER_FORMAT_BF16 ? DType::kBf16 : DType::kF32;
}

Dispatcher DispatcherOf(v1::Dispatcher dispatcher) {
  switch (dispatcher) {
    case v1::DISPATCHER_ALLGATHER:
      return Dispatcher::kAllGather;
    case v1::DISPATCHER_FLEX:
      return Dispatcher::kFlex;
    default:
      return Dispatcher::kAllToAll;
  }
}

}  // namespace

const char* Name(Activation activation) {
  switch (activation) {
    case Activation::kSwiglu:
      return "swiglu";
    case Activation::kSquaredRelu:
      return "squared_relu";
    case Activation::kGelu:
      return "gelu";
  }
  return "?";
}

bool Has(const LayerBlocks& blocks, BlockKind kind) {
  return std::find(blocks.begin(), blocks.end(), kind) != blocks.end();
}

int64_t Shape::blocks() const {
  int64_t count = 0;
  for (const LayerBlocks& layer : layers) count += layer.size();
  return count;
}

bool Shape::has(BlockKind kind) const {
  const auto has_it = [&](const LayerBlocks& layer) {
    return Has(layer, kind);
  };
  return std::any_of(layers.begin(), layers.end(), has_it) ||
         std::any_of(mtp_layers.begin(), mtp_layers.end(), has_it);
}

namespace {

// YaRN's m(c).
double MagnitudeOf(const YarnShape& yarn, double c) {
  return yarn.factor > 1 ? 0.1 * c * std::log(yarn.factor) + 1 : 1;
}

}  // namespace

double YarnShape::rotation_magnitude() const {
  return MagnitudeOf(*this, mscale) / MagnitudeOf(*this, mscale_all_dim);
}

double YarnShape::score_factor() const {
  const double m = MagnitudeOf(*this, mscale_all_dim);
  return m * m;
}

double Shape::mla_scale() const {
  if (softmax_scale != 0) return softmax_scale;
  return mla.yarn.score_factor() / std::sqrt(1.0 * mla.qk_dim());
}

int64_t Shape::mla_weights() const {
  const int64_t queries = heads * mla.qk_dim();
  const int64_t q =
      mla.q_rank == 0 ? hidden * queries : mla.q_rank * (hidden + queries);
  const int64_t kv = hidden * (mla.kv_rank + mla.rope_dim) +
                     mla.kv_rank * heads * (mla.plain_dim + mla.v_dim);
  return q + kv + heads * mla.v_dim * hidden;
}

int64_t Shape::routers() const {
  const auto routes = [](const LayerBlocks& blocks) {
    return Has(blocks, BlockKind::kExperts);
  };
  return std::count_if(layers.begin(), layers.end(), routes) +
         std::count_if(mtp_layers.begin(), mtp_layers.end(), routes);
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

int64_t Shape::capacity() const {
  if (capacity_factor == 0) return 0;
  return static_cast<int64_t>(std::ceil(static_cast<double>(tokens * top_k) /
                                        experts * capacity_factor));
}

int64_t Shape::sent_rows() const {
  const int64_t slots = tokens * top_k;
  if (capacity_factor == 0) return slots;
  const int64_t kept = experts * capacity();
  return pad_to_capacity ? kept : std::min(slots, kept);
}

int64_t Shape::max_received_rows() const {
  if (pad_to_capacity) return sent_rows();
  int64_t possible = tokens * ep * std::min(top_k, local_experts());
  if (capacity_factor > 0) {
    possible = std::min(possible, ep * local_experts() * capacity());
  }
  if (max_rows_factor == 0) return possible;
  // Each rank of the group sends so many, and a balanced one gets as many.
  const double bound = std::ceil(max_rows_factor * tokens * top_k);
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
  shape->rope = !attention.no_rope();
  shape->rotary_fraction = Or(attention.rotary_fraction(), 1.0);
  shape->softmax_scale = attention.softmax_scale();
  shape->rope_theta = Or(attention.rope_theta(), 10000.0);
}

void FillMoe(const v1::MoeConfig& moe, Shape* shape) {
  shape->experts = moe.num_experts();
  shape->top_k = moe.top_k();
  shape->expert_ffn = moe.expert_hidden_size();
  shape->shared_ffn = moe.shared_expert_hidden_size();
  shape->shared_gate = moe.shared_expert_gate();
  shape->overlap_shared_expert = moe.overlap_shared_expert();
  shape->max_rows_factor = moe.max_rows_factor();
  const v1::RouterLossConfig& losses = moe.router_loss();
  shape->router_loss = {losses.aux(), losses.sequence_aux(),
                        losses.global_aux(), losses.z()};
  shape->renormalize_top_k =
      moe.top_k_normalization() != v1::TOP_K_NORMALIZATION_RAW;
  shape->sigmoid_scores = moe.score_function() == v1::SCORE_FUNCTION_SIGMOID;
  shape->routing_scale = Or(moe.scaling_factor(), 1.0);
  if (moe.has_expert_groups()) {
    const v1::ExpertGroupsConfig& groups = moe.expert_groups();
    const int64_t scores = std::max<int64_t>(1, moe.top_k() / groups.kept());
    shape->expert_groups = {groups.groups(), groups.kept(),
                            Or<int64_t>(groups.scores(), scores)};
  }
  shape->expert_bias = moe.has_expert_bias();
  shape->expert_bias_rate = moe.expert_bias().update_rate();
  shape->capacity_factor = moe.capacity().factor();
  shape->pad_to_capacity = moe.capacity().pad();
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
  shape.one_norm = mamba.norm_over_all_groups();
  shape.dt_min = mamba.time_step_min();
  shape.dt_max = mamba.time_step_max();
  return shape;
}

MlaShape MlaOf(const v1::MlaConfig& config) {
  MlaShape mla;
  mla.q_rank = config.q_lora_rank();
  mla.kv_rank = config.kv_lora_rank();
  mla.plain_dim = config.qk_nope_head_dim();
  mla.rope_dim = config.qk_rope_head_dim();
  mla.v_dim = config.v_head_dim();
  mla.half_split = config.rope_half_split();
  if (!config.has_yarn()) return mla;
  const v1::YarnConfig& yarn = config.yarn();
  mla.yarn.factor = yarn.factor();
  mla.yarn.original_positions = yarn.original_positions();
  mla.yarn.beta_fast = Or(yarn.beta_fast(), 32.0);
  mla.yarn.beta_slow = Or(yarn.beta_slow(), 1.0);
  mla.yarn.mscale = yarn.has_mscale() ? yarn.mscale() : 1;
  mla.yarn.mscale_all_dim = yarn.mscale_all_dim();
  return mla;
}

RecomputePart RecomputePartOf(int part) {
  switch (part) {
    case v1::RECOMPUTE_PART_NORM:
      return RecomputePart::kNorm;
    case v1::RECOMPUTE_PART_MOE_ACTIVATION:
      return RecomputePart::kMoeActivation;
    case v1::RECOMPUTE_PART_MLA_UP_PROJECTION:
      return RecomputePart::kMlaUpProjection;
    case v1::RECOMPUTE_PART_ATTENTION_CORE:
      return RecomputePart::kAttentionCore;
    case v1::RECOMPUTE_PART_MLP:
      return RecomputePart::kMlp;
    case v1::RECOMPUTE_PART_SHARED_EXPERT:
      return RecomputePart::kSharedExpert;
    default:
      return RecomputePart::kNone;
  }
}

Recompute RecomputeOf(const v1::RecomputeConfig& config) {
  Recompute recompute;
  for (int part : config.parts()) {
    recompute.parts.push_back(RecomputePartOf(part));
  }
  recompute.full = config.full();
  return recompute;
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
  shape.embedding_multiplier = Or(model.embedding_multiplier(), 1.0);
  shape.residual_multiplier = Or(model.residual_multiplier(), 1.0);
  shape.logits_divisor = Or(model.logits_divisor(), 1.0);
  shape.ffn = model.ffn_hidden_size();
  shape.activation = ActivationOf(model.mlp_activation());
  shape.tie_embeddings = model.tie_embeddings();
  shape.norm_epsilon = Or(model.norm_epsilon(), 1e-5);
  shape.init_std = Or(model.init_std(), 0.02);
  if (model.has_padding_token()) shape.padding_token = model.padding_token();
  const Pattern pattern = PatternOf(model);
  shape.layers = pattern.layers;
  shape.has_groups = std::find(pattern.is_group.begin(), pattern.is_group.end(),
                               true) != pattern.is_group.end();
  shape.mtp_layers.assign(pattern.mtp_depth, pattern.mtp);
  shape.unit_layers = UnitLayers(job);
  shape.mtp_loss_factor = Or(model.mtp().loss_factor(), 0.1);
  if (model.has_mla()) shape.mla = MlaOf(model.mla());
  if (model.has_moe()) FillMoe(model.moe(), &shape);
  if (model.has_mamba()) shape.mamba = MambaOf(model.mamba());
  shape.balanced_routing = job.bench().balanced_routing();
  shape.replays_routing = !job.replay_routing().empty();
  shape.compute_dtype = DTypeOf(job.precision().compute());
  shape.gradient_dtype = DTypeOf(job.precision().gradients());
  shape.sequence = job.data().sequence_length();
  shape.token_loss = job.loss().normalization() == v1::LOSS_NORMALIZATION_TOKEN;
  shape.loss_mask = !job.data().loss_mask_prefix().empty();
  shape.padding_mask = !job.data().padding_mask_prefix().empty();
  shape.world = job.parallel().world();
  shape.ep = Or(job.parallel().ep(), 1);
  shape.dispatcher = DispatcherOf(job.parallel().dispatcher());
  shape.recompute = RecomputeOf(job.schedule().recompute());
  FillBatch(job.batch(), &shape);
  return shape;
}

}  // namespace weft::model
