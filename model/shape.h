// The sizes of a model as numbers, with every default filled in.
#ifndef WEFT_MODEL_SHAPE_H_
#define WEFT_MODEL_SHAPE_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "model/recompute_part.h"
#include "weft/v1/job.pb.h"

namespace weft::model {

// Coefficients of the routers' losses; 0 leaves a loss out.
struct RouterCoefficients {
  double aux = 0;
  double sequence_aux = 0;
  double global_aux = 0;
  double z = 0;

  // Whether the tokens that choose each expert on all ranks are needed.
  bool need_counts() const { return aux > 0 || global_aux > 0; }
  // Whether any loss balances experts, and so has a gradient of scores.
  bool balance() const { return need_counts() || sequence_aux > 0; }
};

// Activation between the projections of a feed-forward; see MlpActivation.
enum class Activation : uint8_t { kSwiglu, kSquaredRelu, kGelu };
// As job files write it, without what all have in common.
const char* Name(Activation activation);

// Experts in contiguous groups, of which a token keeps the best; see
// ExpertGroupsConfig.
struct ExpertGroups {
  int64_t groups = 0;  // 0: none
  int64_t kept = 0;
  int64_t scores = 0;
};

// v1::YarnConfig; a factor of 1 changes nothing.
struct YarnShape {
  double factor = 1;
  double original_positions = 1;
  double beta_fast = 32;
  double beta_slow = 1;
  double mscale = 1;
  double mscale_all_dim = 0;

  // What cosines and sines are multiplied by, and scores.
  double rotation_magnitude() const;
  double score_factor() const;
};

// Multi-head latent attention: v1::MlaConfig. Without it kv_rank is 0.
struct MlaShape {
  int64_t q_rank = 0;   // of the queries' latent; 0: there is none
  int64_t kv_rank = 0;  // of the latent of keys and values
  // Of a head of queries and keys: what is not rotated, and what is.
  int64_t plain_dim = 0;
  int64_t rope_dim = 0;
  int64_t v_dim = 0;        // of a head of values
  bool half_split = false;  // pairs of a rotation; see kernels/ops/mla_qkv
  YarnShape yarn;

  int64_t qk_dim() const { return plain_dim + rope_dim; }
};

// A part of a layer with a residual around it: y = x + f(norm(x)).
enum class BlockKind : uint8_t {
  kAttention,
  kMamba,    // Mamba-2 mixer
  kMla,      // multi-head latent attention
  kMlp,      // dense feed-forward
  kExperts,  // experts, with their router and the shared expert
};
// The blocks of a decoder layer, in forward order; kMlp and kExperts only last.
using LayerBlocks = std::vector<BlockKind>;
bool Has(const LayerBlocks& blocks, BlockKind kind);

// How tokens reach their experts; see v1::Dispatcher.
enum class Dispatcher : uint8_t { kAllToAll, kAllGather, kFlex };

// Of a Mamba-2 mixer.
struct MambaShape {
  int64_t heads = 0;  // 0: no layer has one
  int64_t head_dim = 0;
  int64_t groups = 0;
  int64_t state_size = 0;
  int64_t conv_width = 0;
  int64_t chunk = 0;
  bool conv_bias = true;
  bool projection_bias = false;  // of both projections
  bool one_norm = false;         // over the channels of all groups
  double dt_min = 0;
  double dt_max = 0;  // 0: none

  // Of x, of z and of the scan's output.
  int64_t inner() const { return heads * head_dim; }
  // Of the gated norm.
  int64_t norm_groups() const { return one_norm ? 1 : groups; }
  // Of x, B and C.
  int64_t conv_columns() const { return inner() + 2 * groups * state_size; }
  // Of z, of what the convolution takes, and of the steps.
  int64_t projected_columns() const { return inner() + conv_columns() + heads; }
};

// Sizes of a job on one rank. Derived from a valid job; see ShapeOf.
struct Shape {
  int64_t vocab = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;             // intermediate width of a dense layer
  int64_t experts = 0;         // 0: no MoE layer
  int64_t top_k = 0;           // experts a token is sent to
  int64_t expert_ffn = 0;      // intermediate width of an expert
  int64_t shared_ffn = 0;      // 0: no shared expert
  double max_rows_factor = 0;  // of MoeConfig; 0: no bound of the job's own
  bool renormalize_top_k = true;
  bool sigmoid_scores = false;  // of routers; else softmax
  double routing_scale = 1;     // of the probabilities of chosen experts
  ExpertGroups expert_groups;
  bool expert_bias = false;     // experts are chosen by score plus a bias
  double expert_bias_rate = 0;  // of its update
  double capacity_factor = 0;   // of CapacityConfig; 0: no bound
  bool pad_to_capacity = false;
  bool balanced_routing = false;  // of BenchConfig
  bool replays_routing = false;   // routers are told the experts of tokens
  bool shared_gate = false;       // of the shared expert
  bool overlap_shared_expert = false;
  Activation activation = Activation::kSwiglu;
  bool qkv_bias = false;
  bool out_bias = false;
  bool qk_norm = false;        // RMSNorm of each head of queries and keys
  bool rope = true;            // queries and keys are rotated
  double rotary_fraction = 1;  // of a head, from its first element on
  double softmax_scale = 0;    // of scores; 0: that of the head's width
  double embedding_multiplier = 1;
  double residual_multiplier = 1;  // of what is added to the residual stream
  double logits_divisor = 1;
  MlaShape mla;
  RouterCoefficients router_loss;
  // Losses are means over the step's tokens; else means over microbatches of
  // means over their tokens.
  bool token_loss = false;
  bool loss_mask = false;     // some tokens do not count as labels
  bool padding_mask = false;  // some tokens are padding
  bool tie_embeddings = false;
  int64_t padding_token = -1;  // row of the table no look-up trains; -1: none
  double norm_epsilon = 1e-5;
  double rope_theta = 10000;
  double init_std = 0.02;
  std::vector<LayerBlocks> layers;  // decoder layers
  bool has_groups = false;          // some layer is a group of its pattern
  // Depths of multi-token prediction: the blocks of each one's layer.
  std::vector<LayerBlocks> mtp_layers;
  // For each layer, then each depth, whether it is a unit; empty: all are.
  std::vector<bool> unit_layers;
  MambaShape mamba;
  double mtp_loss_factor = 0.1;        // of the mean of all depths' losses
  DType compute_dtype = DType::kF32;   // parameters as read, activations
  DType gradient_dtype = DType::kF32;  // of parameters

  int64_t sequence = 0;    // tokens of a sequence
  int64_t microbatch = 0;  // sequences on one rank, of the largest one
  int64_t tokens = 0;      // sequence * microbatch
  // Of each microbatch, its sequences on one rank; empty: all are alike.
  std::vector<int64_t> uneven;
  int64_t microbatches = 0;  // of a step
  int64_t ep = 1;            // ranks of an expert-parallel group
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  int64_t world = 1;  // ranks of the job
  Recompute recompute;

  // Of all decoder layers.
  int64_t blocks() const;
  bool has(BlockKind kind) const;  // those of depths, too
  int mtp_depths() const { return static_cast<int>(mtp_layers.size()); }
  // Of queries, keys and values side by side.
  int64_t qkv_columns() const { return (heads + 2 * kv_heads) * head_dim; }
  // Heads of queries and keys.
  int64_t qk_heads() const { return heads + kv_heads; }
  // Elements of a head that are rotated.
  int64_t rotary_dim() const {
    return rope ? std::llround(rotary_fraction * head_dim) : 0;
  }
  // What scores are multiplied by.
  double attention_scale() const {
    return softmax_scale != 0 ? softmax_scale : 1 / std::sqrt(1.0 * head_dim);
  }
  double mla_scale() const;
  // Columns of queries, keys and values of latent attention side by side.
  int64_t mla_qkv_columns() const {
    return heads * (2 * mla.qk_dim() + mla.v_dim);
  }
  // Weights of a block of latent attention that a token meets.
  int64_t mla_weights() const;
  // Numbers in the tables of cosines and sines of the positions of a sequence:
  // those of attention, then those of latent attention, for as much as layers
  // have of them.
  int64_t attention_table_elements() const {
    return has(BlockKind::kAttention) ? sequence * rotary_dim() : 0;
  }
  int64_t mla_table_elements() const {
    return has(BlockKind::kMla) ? sequence * mla.rope_dim : 0;
  }
  int64_t rotary_table_elements() const {
    return attention_table_elements() + mla_table_elements();
  }
  // Whether a feed-forward's first projection has two outputs.
  bool gated_mlp() const { return activation == Activation::kSwiglu; }
  // Outputs of a feed-forward's first projection.
  int64_t up_columns(int64_t ffn) const { return gated_mlp() ? 2 * ffn : ffn; }
  // Experts of a layer on one rank.
  int64_t local_experts() const { return experts / ep; }
  // Tokens of all ranks of an EP group.
  int64_t group_tokens() const { return ep * tokens; }
  // Whether what an EP group exchanges has sizes that routing does not change:
  // all ranks have all its tokens, and send back sums.
  bool gathers_tokens() const { return dispatcher != Dispatcher::kAllToAll; }
  // Choices of experts that this rank's tokens make in one layer.
  int64_t slots() const { return tokens * top_k; }
  // Most tokens that an expert takes of this rank; 0: no bound.
  int64_t capacity() const;
  // Rows for experts that a rank has room for in one layer: those it sends, or,
  // where a capacity drops some, as many at most.
  int64_t sent_rows() const;
  // Whether losses that balance experts count other choices than the router's:
  // those by scores alone.
  bool plain_choices() const {
    return router_loss.balance() && (expert_bias || expert_groups.groups > 0);
  }
  // Whether they read other choices than the router's: those, or not all.
  bool own_loss_choices() const {
    return plain_choices() || (router_loss.balance() && padding_mask);
  }
  // Whether they count other tokens by expert than are sent to it.
  bool own_loss_counts() const {
    return router_loss.need_counts() &&
           (own_loss_choices() || capacity_factor > 0);
  }
  // Whether they read other scores than the router's.
  bool own_loss_scores() const {
    return router_loss.balance() && (sigmoid_scores || padding_mask);
  }
  // Columns of an all-reduced count of each expert's rows: the experts, padded
  // to a multiple of the ranks.
  int64_t balance_columns() const {
    return (experts + world - 1) / world * world;
  }
  int64_t sequences_of(int microbatch_index) const {
    return uneven.empty() ? microbatch : uneven[microbatch_index];
  }
  // The shape of one microbatch: `microbatch` and `tokens` are its own.
  Shape Of(int microbatch_index) const;
  // Tokens of a step on one rank.
  int64_t step_tokens() const;
  // What a token's loss counts in the objective of its rank, and what a router
  // loss of a microbatch of this shape counts beside its coefficient, when
  // every token counts as a label. See loss_weights of model/decoder.h.
  double token_loss_weight() const;
  double router_loss_weight() const;
  // i32 words of a sample on the host: its tokens; with a loss mask, its
  // labels; for each depth a token past the end, which is 0, and then a label
  // past the end, which does not count; with a padding mask, for each token but
  // the last whether it is valid.
  int64_t sample_words() const {
    return tail_at() + 2 * mtp_depths() + (padding_mask ? sequence : 0);
  }
  int64_t tail_at() const { return sequence + 1 + (loss_mask ? sequence : 0); }
  const int32_t* labels_of(const int32_t* sample) const {
    return sample + (loss_mask ? sequence + 1 : 1);
  }
  // f64 numbers of a microbatch's tokens on one rank: its labels that count,
  // those of the step, valid tokens, and labels of each depth that count.
  int64_t loss_token_numbers() const { return 3 + mtp_depths(); }
  bool has_masks() const { return loss_mask || padding_mask; }
  // Whether what losses weigh depends on the tokens of a step.
  bool weighs_losses() const { return has_masks() || mtp_depths() > 0; }
  // Layers with experts, those of depths too.
  int64_t routers() const;
  // Most rows the experts of one rank may get from its EP group: as many as
  // routing can send at all, or the job's own bound.
  int64_t max_received_rows() const;
};

// Requires: `job` has passed validation. Applies the defaults documented in
// job.proto.
Shape ShapeOf(const v1::TrainingJob& job);

}  // namespace weft::model

#endif  // WEFT_MODEL_SHAPE_H_
