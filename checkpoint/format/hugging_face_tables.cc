#include "checkpoint/format/hugging_face_tables.h"

namespace weft::checkpoint::hugging_face {
namespace {

constexpr Rule kOutside[] = {
    {"embedding.table",
     false,
     {{"model.embed_tokens.weight", {Dim::kVocab, Dim::kHidden}}}},
    {"head.norm", false, {{"model.norm.weight", {Dim::kHidden}}}},
    {"head.output", false, {{"lm_head.weight", {Dim::kVocab, Dim::kHidden}}}},
};

constexpr Rule kBambaOutside[] = {
    {"embedding.table",
     false,
     {{"model.embed_tokens.weight", {Dim::kVocab, Dim::kHidden}}}},
    {"head.norm", false, {{"model.final_layernorm.weight", {Dim::kHidden}}}},
    {"head.output", false, {{"lm_head.weight", {Dim::kVocab, Dim::kHidden}}}},
};

constexpr Rule kBackboneOutside[] = {
    {"embedding.table",
     false,
     {{"backbone.embeddings.weight", {Dim::kVocab, Dim::kHidden}}}},
    {"head.norm", false, {{"backbone.norm_f.weight", {Dim::kHidden}}}},
    {"head.output", false, {{"lm_head.weight", {Dim::kVocab, Dim::kHidden}}}},
};

// Norms before a mixer and before a feed-forward.
constexpr Rule kNorms[] = {
    {"norm", false, {{"input_layernorm.weight", {Dim::kHidden}}}},
    {"norm1", false, {{"input_layernorm.weight", {Dim::kHidden}}}},
    {"norm2", false, {{"post_attention_layernorm.weight", {Dim::kHidden}}}},
};

constexpr Rule kBambaNorms[] = {
    {"norm", false, {{"input_layernorm.weight", {Dim::kHidden}}}},
    {"norm1", false, {{"input_layernorm.weight", {Dim::kHidden}}}},
    {"norm2", false, {{"pre_ff_layernorm.weight", {Dim::kHidden}}}},
};

constexpr Rule kOneNorm[] = {
    {"norm", false, {{"norm.weight", {Dim::kHidden}}}},
    {"norm1", false, {{"norm.weight", {Dim::kHidden}}}},
    {"norm2", false, {{"norm.weight", {Dim::kHidden}}}},
};

constexpr Rule kAttention[] = {
    {"qkv",
     false,
     {{"self_attn.q_proj.weight", {Dim::kQuery, Dim::kHidden}},
      {"self_attn.k_proj.weight", {Dim::kKeyValue, Dim::kHidden}},
      {"self_attn.v_proj.weight", {Dim::kKeyValue, Dim::kHidden}}}},
    {"qkv_bias",
     false,
     {{"self_attn.q_proj.bias", {Dim::kQuery}},
      {"self_attn.k_proj.bias", {Dim::kKeyValue}},
      {"self_attn.v_proj.bias", {Dim::kKeyValue}}}},
    {"out", false, {{"self_attn.o_proj.weight", {Dim::kHidden, Dim::kQuery}}}},
    {"out_bias", false, {{"self_attn.o_proj.bias", {Dim::kHidden}}}},
    {"q_norm", false, {{"self_attn.q_norm.weight", {Dim::kHead}}}},
    {"k_norm", false, {{"self_attn.k_norm.weight", {Dim::kHead}}}},
};

constexpr Rule kMixerAttention[] = {
    {"qkv",
     false,
     {{"$1.q_proj.weight", {Dim::kQuery, Dim::kHidden}},
      {"$1.k_proj.weight", {Dim::kKeyValue, Dim::kHidden}},
      {"$1.v_proj.weight", {Dim::kKeyValue, Dim::kHidden}}}},
    {"qkv_bias",
     false,
     {{"$1.q_proj.bias", {Dim::kQuery}},
      {"$1.k_proj.bias", {Dim::kKeyValue}},
      {"$1.v_proj.bias", {Dim::kKeyValue}}}},
    {"out", false, {{"$1.o_proj.weight", {Dim::kHidden, Dim::kQuery}}}},
    {"out_bias", false, {{"$1.o_proj.bias", {Dim::kHidden}}}},
};

constexpr Rule kMla[] = {
    {"q_proj",
     false,
     {{"self_attn.q_proj.weight", {Dim::kMlaQuery, Dim::kHidden}}}},
    {"q_down",
     false,
     {{"self_attn.q_a_proj.weight", {Dim::kLatentQuery, Dim::kHidden}}}},
    {"q_norm",
     false,
     {{"self_attn.q_a_layernorm.weight", {Dim::kLatentQuery}}}},
    {"q_up",
     false,
     {{"self_attn.q_b_proj.weight", {Dim::kMlaQuery, Dim::kLatentQuery}}}},
    {"kv_down",
     false,
     {{"self_attn.kv_a_proj_with_mqa.weight",
       {Dim::kLatentAndRotated, Dim::kHidden}}}},
    {"kv_norm", false, {{"self_attn.kv_a_layernorm.weight", {Dim::kLatent}}}},
    {"kv_up",
     false,
     {{"self_attn.kv_b_proj.weight", {Dim::kMlaKeyValue, Dim::kLatent}}}},
    {"out",
     false,
     {{"self_attn.o_proj.weight", {Dim::kHidden, Dim::kMlaValue}}}},
};

constexpr Rule kMamba[] = {
    {"in_proj",
     false,
     {{"$1.in_proj.weight", {Dim::kMambaProjection, Dim::kHidden}}}},
    {"in_proj_bias", false, {{"$1.in_proj.bias", {Dim::kMambaProjection}}}},
    {"conv_weight",
     false,
     {{"$1.conv1d.weight", {Dim::kMambaChannels, Dim::kOne, Dim::kConvWidth}}}},
    {"conv_bias", false, {{"$1.conv1d.bias", {Dim::kMambaChannels}}}},
    {"dt_bias", false, {{"$1.dt_bias", {Dim::kMambaHeads}}}},
    {"A_log", false, {{"$1.A_log", {Dim::kMambaHeads}}}},
    {"D", false, {{"$1.D", {Dim::kMambaHeads}}}},
    {"gated_norm", false, {{"$1.norm.weight", {Dim::kMambaInner}}}},
    {"out_proj",
     false,
     {{"$1.out_proj.weight", {Dim::kHidden, Dim::kMambaInner}}}},
    {"out_proj_bias", false, {{"$1.out_proj.bias", {Dim::kHidden}}}},
};

constexpr Rule kDense[] = {
    {"mlp.gate_up",
     false,
     {{"mlp.gate_proj.weight", {Dim::kFfn, Dim::kHidden}},
      {"mlp.up_proj.weight", {Dim::kFfn, Dim::kHidden}}}},
    {"mlp.down", false, {{"mlp.down_proj.weight", {Dim::kHidden, Dim::kFfn}}}},
};

constexpr Rule kBambaDense[] = {
    {"mlp.gate_up",
     false,
     {{"feed_forward.gate_proj.weight", {Dim::kFfn, Dim::kHidden}},
      {"feed_forward.up_proj.weight", {Dim::kFfn, Dim::kHidden}}}},
    {"mlp.down",
     false,
     {{"feed_forward.down_proj.weight", {Dim::kHidden, Dim::kFfn}}}},
};

constexpr Rule kQwenShared[] = {
    {"shared_gate_up",
     false,
     {{"mlp.shared_expert.gate_proj.weight", {Dim::kSharedFfn, Dim::kHidden}},
      {"mlp.shared_expert.up_proj.weight", {Dim::kSharedFfn, Dim::kHidden}}}},
    {"shared_down",
     false,
     {{"mlp.shared_expert.down_proj.weight", {Dim::kHidden, Dim::kSharedFfn}}}},
    {"shared_gate",
     false,
     {{"mlp.shared_expert_gate.weight", {Dim::kOne, Dim::kHidden}}}},
};

constexpr Rule kDeepseekShared[] = {
    {"shared_gate_up",
     false,
     {{"mlp.shared_experts.gate_proj.weight", {Dim::kSharedFfn, Dim::kHidden}},
      {"mlp.shared_experts.up_proj.weight", {Dim::kSharedFfn, Dim::kHidden}}}},
    {"shared_down",
     false,
     {{"mlp.shared_experts.down_proj.weight",
       {Dim::kHidden, Dim::kSharedFfn}}}},
};

constexpr Rule kDeepseekBias[] = {
    {"expert_bias",
     false,
     {{"mlp.gate.e_score_correction_bias", {Dim::kExperts}}}},
};

constexpr Rule kExperts[] = {
    {"router", false, {{"mlp.gate.weight", {Dim::kExperts, Dim::kHidden}}}},
    {"experts.gate_up",
     true,
     {{"mlp.experts.$0.gate_proj.weight", {Dim::kExpertFfn, Dim::kHidden}},
      {"mlp.experts.$0.up_proj.weight", {Dim::kExpertFfn, Dim::kHidden}}}},
    {"experts.down",
     true,
     {{"mlp.experts.$0.down_proj.weight", {Dim::kHidden, Dim::kExpertFfn}}}},
};

constexpr Rule kMixtralExperts[] = {
    {"router",
     false,
     {{"block_sparse_moe.gate.weight", {Dim::kExperts, Dim::kHidden}}}},
    {"experts.gate_up",
     true,
     {{"block_sparse_moe.experts.$0.w1.weight",
       {Dim::kExpertFfn, Dim::kHidden}},
      {"block_sparse_moe.experts.$0.w3.weight",
       {Dim::kExpertFfn, Dim::kHidden}}}},
    {"experts.down",
     true,
     {{"block_sparse_moe.experts.$0.w2.weight",
       {Dim::kHidden, Dim::kExpertFfn}}}},
};

// Experts of a layer in one tensor; without experts the shared one is dense.
constexpr Rule kGraniteFeedForward[] = {
    {"router",
     false,
     {{"block_sparse_moe.router.layer.weight", {Dim::kExperts, Dim::kHidden}}}},
    {"experts.gate_up",
     false,
     {{"block_sparse_moe.input_linear.weight",
       {Dim::kExperts, Dim::kGatedExpertFfn, Dim::kHidden}}}},
    {"experts.down",
     false,
     {{"block_sparse_moe.output_linear.weight",
       {Dim::kExperts, Dim::kHidden, Dim::kExpertFfn}}}},
    {"shared_gate_up",
     false,
     {{"shared_mlp.input_linear.weight",
       {Dim::kGatedSharedFfn, Dim::kHidden}}}},
    {"shared_down",
     false,
     {{"shared_mlp.output_linear.weight", {Dim::kHidden, Dim::kSharedFfn}}}},
    {"mlp.gate_up",
     false,
     {{"shared_mlp.input_linear.weight", {Dim::kGatedFfn, Dim::kHidden}}}},
    {"mlp.down",
     false,
     {{"shared_mlp.output_linear.weight", {Dim::kHidden, Dim::kFfn}}}},
};

constexpr Rule kNemotronFeedForward[] = {
    {"mlp.up", false, {{"mixer.up_proj.weight", {Dim::kFfn, Dim::kHidden}}}},
    {"mlp.down",
     false,
     {{"mixer.down_proj.weight", {Dim::kHidden, Dim::kFfn}}}},
    {"router", false, {{"mixer.gate.weight", {Dim::kExperts, Dim::kHidden}}}},
    {"expert_bias",
     false,
     {{"mixer.gate.e_score_correction_bias", {Dim::kExperts}}}},
    {"experts.up",
     true,
     {{"mixer.experts.$0.up_proj.weight", {Dim::kExpertFfn, Dim::kHidden}}}},
    {"experts.down",
     true,
     {{"mixer.experts.$0.down_proj.weight", {Dim::kHidden, Dim::kExpertFfn}}}},
    {"shared_up",
     false,
     {{"mixer.shared_experts.up_proj.weight",
       {Dim::kSharedFfn, Dim::kHidden}}}},
    {"shared_down",
     false,
     {{"mixer.shared_experts.down_proj.weight",
       {Dim::kHidden, Dim::kSharedFfn}}}},
};

constexpr Table kLlamaLayer[] = {kNorms, kAttention, kDense};
constexpr Table kMixtralLayer[] = {kNorms, kAttention, kMixtralExperts};
constexpr Table kQwenLayer[] = {kNorms, kAttention, kDense, kQwenShared,
                                kExperts};
constexpr Table kDeepseekLayer[] = {kNorms,          kMla,          kDense,
                                    kDeepseekShared, kDeepseekBias, kExperts};
constexpr Table kMamba2Layer[] = {kOneNorm, kMamba};
constexpr Table kBambaLayer[] = {kBambaNorms, kAttention, kMamba, kBambaDense};
constexpr Table kGraniteLayer[] = {kNorms, kAttention, kMamba,
                                   kGraniteFeedForward};
constexpr Table kNemotronLayer[] = {kOneNorm, kMixerAttention, kMamba,
                                    kNemotronFeedForward};

constexpr char kModel[] = "model.layers.";
constexpr char kBackbone[] = "backbone.layers.";

// In the order of HfFamily.
constexpr Layout kLayouts[] = {
    {kOutside, kModel, "", kLlamaLayer},
    {kOutside, kModel, "", kMixtralLayer},
    {kOutside, kModel, "", kQwenLayer},
    {kOutside, kModel, "", kQwenLayer},
    {kOutside, kModel, "", kDeepseekLayer},
    {kBackboneOutside, kBackbone, "mixer", kMamba2Layer},
    {kBambaOutside, kModel, "mamba", kBambaLayer},
    {kOutside, kModel, "mamba", kGraniteLayer},
    {kBackboneOutside, kBackbone, "mixer", kNemotronLayer},
};

}  // namespace

const Layout& LayoutOf(HfFamily family) {
  return kLayouts[static_cast<int>(family)];
}

}  // namespace weft::checkpoint::hugging_face
