#include "tests/property/random_job.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>

#include "tests/property/job_layers.h"

namespace weft::tests {
namespace {

// Globs of some parameters that every job has.
constexpr const char* kParameters[] = {"*.norm1",     "layers.0.*", "*.q*",
                                       "embedding.*", "layers.*",   "*.out"};
// And with a pattern.
constexpr const char* kPatternParameters[] = {"layers.0.*", "embedding.*",
                                              "layers.*"};

// Draws one job.
class Drawer {
 public:
  explicit Drawer(std::mt19937& random) : random_(random) {}

  v1::TrainingJob Draw() {
    Model();
    if (Chance(9, 10)) Moe();
    if (Chance(1, 3)) Pattern();
    Parallel();
    Batch();
    Schedule();
    Fsdp();
    Optimizer();
    Rest();
    return job_;
  }

 private:
  // From `from` to `to`, both among them.
  int Between(int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random_);
  }
  bool Chance(int times, int of) { return Between(1, of) <= times; }
  template <size_t n>
  int64_t OneOf(const int64_t (&choices)[n]) {
    return choices[Between(0, n - 1)];
  }

  void Model() {
    v1::ModelConfig& model = *job_.mutable_model();
    model.set_vocab_size(Between(20, 40));
    model.set_num_layers(Between(1, 6));
    model.set_hidden_size(16);
    model.set_init_std(0.2);
    v1::AttentionConfig& attention = *model.mutable_attention();
    attention.set_num_heads(4);
    attention.set_num_kv_heads(Chance(1, 300) ? 3 : OneOf({1, 2, 4}));
    attention.set_qkv_bias(Chance(1, 3));
    attention.set_output_bias(Chance(1, 3));
    attention.set_qk_norm(Chance(1, 3));
    attention.set_no_rope(Chance(1, 6));
    if (Chance(1, attention.no_rope() ? 300 : 4)) {
      attention.set_rotary_fraction(0.5);
    }
    if (Chance(1, 4)) attention.set_softmax_scale(0.3);
    if (Chance(1, 4)) model.set_embedding_multiplier(3);
    if (Chance(1, 4)) model.set_residual_multiplier(0.4);
    if (Chance(1, 4)) model.set_logits_divisor(2);
    model.set_tie_embeddings(Chance(1, 2));
    if (Chance(1, 4)) {
      model.set_padding_token(Chance(1, 100) ? 40 : Between(0, 19));
    }
    if (Chance(1, 5)) Mla();
    if (Chance(1, 2)) {
      model.set_mlp_activation(Chance(1, 2) ? v1::MLP_ACTIVATION_SQUARED_RELU
                                            : v1::MLP_ACTIVATION_GELU);
    }
    for (int layer = 0; layer < model.num_layers(); ++layer) {
      if (Chance(1, 5)) model.add_dense_layers(layer);
    }
    if (Chance(299, 300)) model.set_ffn_hidden_size(20);
    if (Chance(1, 5)) {
      model.mutable_mtp()->set_depth(Chance(1, 50) ? 16 : Between(1, 2));
      model.mutable_mtp()->set_dense(Chance(1, 4));
    }
  }

  char Mixer() { return "M*+"[Between(0, 2)]; }
  char Symbol() {
    const char* symbols = job_.model().has_moe() ? "M*+-E" : "M*+-";
    return symbols[Between(0, job_.model().has_moe() ? 4 : 3)];
  }

  // Up to 12 symbols, some of them in groups, in place of a list.
  void Pattern() {
    v1::ModelConfig& model = *job_.mutable_model();
    model.clear_num_layers();
    model.clear_dense_layers();
    std::string pattern;
    for (int left = Between(1, 12); left > 0;) {
      const int size = Chance(1, 2) ? 1 : Between(1, std::min(left, 4));
      const bool is_group = size > 1 || Chance(1, 4);
      if (is_group) pattern += '[';
      for (int i = 1; i < size; ++i) pattern += Mixer();
      pattern += Symbol();
      if (is_group) pattern += ']';
      left -= size;
    }
    model.set_pattern(pattern);
    if (model.has_moe() && !HasExperts(model) && Chance(99, 100)) {
      model.mutable_moe()->clear_router_loss();
    }
    if (InPattern(model, '+') && (!model.has_mla() || !InPattern(model, '*'))) {
      Mla();
    }
    if (InPattern(model, 'M') || Chance(1, 10)) Mamba();
  }

  void Mamba() {
    v1::MambaConfig& mamba = *job_.mutable_model()->mutable_mamba();
    mamba.set_num_heads(4);
    mamba.set_num_groups(Chance(1, 300) ? 3 : OneOf({1, 2, 4}));
    mamba.set_head_dim(OneOf({3, 6}));
    mamba.set_state_size(5);
    mamba.set_conv_width(OneOf({2, 4}));
    mamba.set_chunk_size(OneOf({1, 3, 128}));
    mamba.set_no_conv_bias(Chance(1, 2));
    mamba.set_projection_bias(Chance(1, 2));
    mamba.set_norm_over_all_groups(Chance(1, 2));
    if (Chance(1, 3)) mamba.set_time_step_max(Chance(1, 100) ? 0.01 : 3);
    if (Chance(1, 3)) mamba.set_time_step_min(0.02);
  }

  void Mla() {
    v1::MlaConfig& mla = *job_.mutable_model()->mutable_mla();
    mla.set_q_lora_rank(OneOf({0, 10}));
    mla.set_kv_lora_rank(6);
    mla.set_qk_nope_head_dim(3);
    mla.set_qk_rope_head_dim(Chance(1, 300) ? 3 : 2);
    mla.set_v_head_dim(OneOf({2, 5}));
    mla.set_rope_half_split(Chance(1, 2));
    if (Chance(1, 3)) {
      mla.mutable_yarn()->set_factor(4);
      mla.mutable_yarn()->set_original_positions(8);
    }
    if (Chance(1, 300)) return;
    v1::AttentionConfig& attention = *job_.mutable_model()->mutable_attention();
    const double softmax_scale = attention.softmax_scale();
    attention.Clear();
    attention.set_num_heads(4);
    attention.set_softmax_scale(softmax_scale);
  }

  void Moe() {
    v1::MoeConfig& moe = *job_.mutable_model()->mutable_moe();
    moe.set_num_experts(Chance(1, 160) ? 2 : OneOf({4, 8, 12}));
    moe.set_top_k(OneOf({2, 2, 2, 2, 1, 4}));
    moe.set_expert_hidden_size(12);
    // With one expert a token, renormalising is rarely what is meant.
    if (Chance(moe.top_k() == 1 ? 79 : 24, 80)) {
      moe.set_top_k_normalization(v1::TOP_K_NORMALIZATION_RAW);
    }
    if (Chance(1, 2)) moe.set_shared_expert_hidden_size(8);
    if (Chance(1, 5)) moe.set_max_rows_factor(Between(2, 8) / 2.0);
    if (Chance(1, 300)) moe.set_max_rows_factor(0.5);
    const bool shared = moe.shared_expert_hidden_size() > 0;
    moe.set_shared_expert_gate(shared ? Chance(1, 2) : Chance(1, 100));
    moe.set_overlap_shared_expert(shared ? Chance(1, 2) : Chance(1, 200));
    Router(moe);
    if (Chance(1, HasExperts(job_.model()) ? 2 : 100))
      RouterLoss(*moe.mutable_router_loss());
  }

  void Router(v1::MoeConfig& moe) {
    const bool sigmoid = Chance(1, 2);
    if (sigmoid) moe.set_score_function(v1::SCORE_FUNCTION_SIGMOID);
    if (Chance(1, 3)) moe.set_scaling_factor(2.5);
    if (Chance(1, 4) && moe.num_experts() >= 4) {
      moe.mutable_expert_groups()->set_groups(2);
      moe.mutable_expert_groups()->set_kept(moe.top_k() == 4 ? 2 : 1);
      if (Chance(1, 200)) moe.mutable_expert_groups()->set_groups(5);
    }
    if (Chance(1, sigmoid ? 2 : 400)) {
      moe.mutable_expert_bias()->set_update_rate(OneOf({0, 1}) * 0.001);
    }
    if (Chance(1, 4)) {
      moe.mutable_capacity()->set_factor(OneOf({1, 2, 4}) * 0.5);
      moe.mutable_capacity()->set_pad(Chance(1, 2));
    }
  }

  void RouterLoss(v1::RouterLossConfig& loss) {
    loss.set_aux(OneOf({0, 1}) * 0.02);
    loss.set_sequence_aux(OneOf({0, 1}) * 0.01);
    loss.set_global_aux(OneOf({0, 1}) * 0.02);
    loss.set_z(OneOf({0, 1}) * 0.001);
  }

  // Powers of two, for the most part, so that most worlds, and experts, can be
  // cut in parts of `ep`.
  void Parallel() {
    v1::ParallelConfig& parallel = *job_.mutable_parallel();
    parallel.set_world(
        OneOf({1, 2, 2, 4, 4, 4, 4, 8, 8, 8, 6, 12, 2, 1, 1, 2, 4, 8}));
    int ep = OneOf({1, 1, 2, 2, 4});
    while (ep > parallel.world()) ep /= 2;
    const v1::ModelConfig& model = job_.model();
    if (!HasExperts(model) && Chance(19, 20)) ep = 1;
    parallel.set_ep(ep);
    parallel.set_dispatcher(static_cast<v1::Dispatcher>(
        OneOf({v1::DISPATCHER_UNSPECIFIED, v1::DISPATCHER_ALLTOALL,
               v1::DISPATCHER_ALLGATHER, v1::DISPATCHER_FLEX})));
    if (model.moe().capacity().pad() && Chance(19, 20)) {
      parallel.clear_dispatcher();
    }
  }

  void Batch() {
    v1::BatchConfig& batch = *job_.mutable_batch();
    batch.set_microbatch(Between(1, 2));
    batch.set_global_batch(batch.microbatch() * job_.parallel().world() *
                           Between(1, 5));
    if (Chance(1, 240)) batch.set_global_batch(Between(1, 24));
    if (Chance(1, 4)) Uneven(batch);
  }

  void Uneven(v1::BatchConfig& batch) {
    if (Chance(99, 100)) batch.clear_microbatch();
    int sum = 0;
    for (int left = Between(1, 4); left > 0; --left) {
      batch.add_microbatches(Between(1, 3));
      sum += *batch.microbatches().rbegin();
    }
    batch.set_global_batch(sum * job_.parallel().world());
    if (Chance(1, 60)) batch.set_global_batch(batch.global_batch() + 1);
  }

  void Schedule() {
    v1::ScheduleConfig& schedule = *job_.mutable_schedule();
    schedule.set_order(Chance(1, 2) ? v1::SCHEDULE_ORDER_SEQUENTIAL
                                    : v1::SCHEDULE_ORDER_COMBINED_1F1B);
    schedule.set_delay_wgrad(Chance(1, 2));
    if (Chance(1, 2)) Recompute(*schedule.mutable_recompute());
  }

  // Of parts, those that most jobs have, as a rule.
  void Recompute(v1::RecomputeConfig& recompute) {
    if (Chance(1, 3)) {
      recompute.set_full(true);
      if (Chance(99, 100)) return;
    }
    const v1::ModelConfig& model = job_.model();
    const bool experts = HasExperts(model);
    const bool shared = experts && model.moe().shared_expert_hidden_size() > 0;
    const auto add = [&](v1::RecomputePart part, bool exists) {
      if (exists ? Chance(1, 2) : Chance(1, 200)) recompute.add_parts(part);
    };
    add(v1::RECOMPUTE_PART_NORM, true);
    add(v1::RECOMPUTE_PART_MOE_ACTIVATION, experts);
    add(v1::RECOMPUTE_PART_MLA_UP_PROJECTION, HasLatent(model));
    add(v1::RECOMPUTE_PART_ATTENTION_CORE,
        HasLatent(model) || HasPlainAttention(model));
    add(v1::RECOMPUTE_PART_MLP, HasDense(model));
    add(v1::RECOMPUTE_PART_SHARED_EXPERT, shared);
    if (Chance(1, 100)) add(v1::RECOMPUTE_PART_NORM, true);
  }

  void Fsdp() {
    v1::FsdpConfig& fsdp = *job_.mutable_fsdp();
    fsdp.set_strategy(static_cast<v1::ShardingStrategy>(
        Between(v1::SHARDING_STRATEGY_NO_SHARD,
                v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS)));
    fsdp.set_prefetch_bytes(OneOf({0, 1, 4096, 40000, 1 << 30}));
    fsdp.set_backward_prefetch_bytes(OneOf({0, 0, 1, 4096, 1 << 30}));
    fsdp.set_reduce_bytes(OneOf({0, 1, 4096, 40000, 1 << 30}));
    // Two slots suffice: for what learns and what is frozen of a unit.
    const bool sharded =
        fsdp.strategy() == v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS;
    if (Chance(sharded ? 40 : 1, 80)) fsdp.set_buffer_slots(Between(2, 6));
    const std::string& pattern = job_.model().pattern();
    if (pattern.empty() || Chance(2, 3)) return;
    // The first layer at least.
    if (pattern[0] == '[' && Chance(1, 2)) {
      fsdp.add_unit_modules(v1::UNIT_MODULE_HYBRID_STACK);
    } else {
      fsdp.mutable_unit_filter()->set_symbols(
          {pattern[0], "M*+-E["[Between(0, 5)]});
    }
  }

  void Optimizer() {
    v1::OptimizerConfig& optimizer = *job_.mutable_optimizer();
    optimizer.set_learning_rate(0.01);
    optimizer.set_weight_decay(0.1);
    optimizer.set_clip_norm(1.0);
    if (Chance(1, 4)) {
      optimizer.set_kind(v1::OPTIMIZER_KIND_SGD);
      if (Chance(1, 2)) optimizer.set_momentum(0.9);
    }
    if (Chance(1, 2)) return;
    v1::ParameterGroup& group = *optimizer.add_groups();
    for (int i = Between(1, 2); i > 0; --i) {
      group.add_parameters(
          job_.model().pattern().empty()
              ? kParameters[Between(0, std::size(kParameters) - 1)]
              : kPatternParameters[Between(0,
                                           std::size(kPatternParameters) - 1)]);
    }
    if (Chance(1, 4)) {
      group.set_learning_rate_scale(3);
    } else {
      group.set_frozen(true);
    }
  }

  v1::NumberFormat Format() {
    return static_cast<v1::NumberFormat>(
        Between(v1::NUMBER_FORMAT_FP32, v1::NUMBER_FORMAT_BF16));
  }

  void Rest() {
    job_.mutable_data()->set_prefix("synthetic");
    if (Chance(1, 3)) job_.mutable_data()->set_loss_mask_prefix("synthetic");
    if (Chance(1, 5)) job_.mutable_data()->set_padding_mask_prefix("synthetic");
    if (Chance(1, 3)) {
      job_.mutable_loss()->set_normalization(v1::LOSS_NORMALIZATION_TOKEN);
    }
    job_.mutable_data()->set_sequence_length(Between(4, 8));
    v1::PrecisionConfig& precision = *job_.mutable_precision();
    precision.set_compute(Format());
    precision.set_gradients(Format());
    job_.set_steps(2);
    job_.set_seed(Between(0, 1 << 20));
    if (Chance(1, 4)) {
      v1::OutputConfig& output = *job_.mutable_output();
      if (Chance(99, 100)) output.set_tap_step(Between(1, 2));
      const char* const globs[] = {"head.*", "layers.*", "layers.0.*"};
      output.add_taps(globs[Between(0, 2)]);
    }
    const v1::ModelConfig& model = job_.model();
    const bool experts = HasExperts(model);
    if (Chance(1, experts ? 4 : 100)) job_.mutable_output()->set_routing(true);
    if (Chance(1, experts ? 10 : 100)) job_.set_replay_routing("/routing");
    if (Chance(1, 3)) {
      job_.mutable_eval()->set_batches(1);
      if (Chance(59, 60)) job_.mutable_data()->set_validation_fraction(0.1);
    }
  }

  std::mt19937& random_;
  v1::TrainingJob job_;
};

}  // namespace

v1::TrainingJob RandomJob(std::mt19937& random) {
  return Drawer(random).Draw();
}

// Routing of random weights may send more rows than a factor allows, and there
// is no routing to replay.
bool CanRun(const v1::TrainingJob& job) {
  constexpr int kLargestWorld = 4;
  return job.parallel().world() <= kLargestWorld &&
         job.model().moe().max_rows_factor() == 0 &&
         job.replay_routing().empty();
}

}  // namespace weft::tests
