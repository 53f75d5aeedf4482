// Readers of DeepSeek-V3, and of the router that Nemotron-H shares with it.
#include "checkpoint/format/hugging_face_deepseek.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "checkpoint/format/hugging_face_reader.h"

namespace weft::checkpoint {
namespace {

constexpr int64_t kMaxFfn = 1048576;

void ReadExpertGroups(const HfDeepseekRouter& absent, HfReader& reader) {
  FieldReader& fields = reader.fields;
  v1::MoeConfig& moe = *reader.model.mutable_moe();
  const int64_t groups = fields.Integer({"n_group", absent.groups, 1, 4096});
  const int64_t kept = fields.Integer({"topk_group", absent.kept, 1, 4096});
  if (!fields.AreFine({"n_group", "topk_group", "n_routed_experts",
                       "num_local_experts", "num_experts_per_tok"})) {
    return;
  }
  const int64_t experts = moe.num_experts();
  if (experts % groups != 0) {
    fields.Refuse("n_group", absl::StrCat(groups, " must divide the ", experts,
                                          " experts"));
  } else if (groups > 1 && experts / groups < 2) {
    fields.Refuse("n_group",
                  absl::StrCat(groups, " must leave 2 experts or more to a ",
                               "group, whose score is that of its best two"));
  } else if (kept > groups || kept * (experts / groups) < moe.top_k()) {
    fields.Refuse("topk_group",
                  absl::StrCat(kept, " must be at most n_group, ", groups,
                               ", and have ", moe.top_k(), " experts"));
  }
  if (groups == 1) return;
  v1::ExpertGroupsConfig& config = *moe.mutable_expert_groups();
  config.set_groups(groups);
  config.set_kept(kept);
  config.set_scores(2);
}

// Queries, keys and values from latents.
void ReadLatents(HfReader& reader) {
  FieldReader& fields = reader.fields;
  v1::MlaConfig& mla = *reader.model.mutable_mla();
  const int64_t absent_rank = fields.IsNull("q_lora_rank") ? 0 : 1536;
  mla.set_q_lora_rank(
      fields.Integer({"q_lora_rank", absent_rank, 1, 65536, true}));
  mla.set_kv_lora_rank(fields.Integer({"kv_lora_rank", 512, 1, 65536}));
  mla.set_qk_nope_head_dim(fields.Integer({"qk_nope_head_dim", 128, 1, 1024}));
  mla.set_qk_rope_head_dim(fields.Integer({"qk_rope_head_dim", 64, 2, 1024}));
  if (mla.qk_rope_head_dim() % 2 != 0) {
    fields.Refuse("qk_rope_head_dim", "must be even");
  }
  mla.set_v_head_dim(fields.Integer({"v_head_dim", 128, 1, 1024}));
  mla.set_rope_half_split(!fields.Boolean("rope_interleave", true));
  const int64_t rotated = mla.qk_rope_head_dim();
  const int64_t whole = rotated + mla.qk_nope_head_dim();
  MustBe("head_dim", rotated, "it is qk_rope_head_dim", reader);
  MustBe("qk_head_dim", whole, "it is qk_nope_head_dim + qk_rope_head_dim",
         reader);
}

void ReadMla(HfReader& reader) {
  FieldReader& fields = reader.fields;
  ReadLatents(reader);
  v1::AttentionConfig& attention = *reader.model.mutable_attention();
  attention.set_num_heads(
      fields.Integer({"num_attention_heads", 128, 1, 1024}));
  const int64_t kv_heads = fields.Integer(
      {"num_key_value_heads",
       fields.IsNull("num_key_value_heads") ? attention.num_heads() : 128, 1,
       1024, true});
  if (fields.AreFine({"num_key_value_heads", "num_attention_heads"}) &&
      kv_heads != attention.num_heads()) {
    fields.Refuse("num_key_value_heads",
                  absl::StrCat(kv_heads, " must be num_attention_heads, ",
                               attention.num_heads()));
  }
  MustBe("attention_bias", false, "projections of latents have no biases",
         reader);
  v1::YarnConfig yarn;
  HfRope rope;
  rope.theta = 1e4;
  rope.yarn = &yarn;
  if (ReadRope(rope, reader))
    *reader.model.mutable_mla()->mutable_yarn() = yarn;
  // Norms of latents have an epsilon of their own in the library.
  if (fields.AreFine({"rms_norm_eps"}) && reader.model.norm_epsilon() != 1e-6) {
    fields.Refuse("rms_norm_eps", "must be 1e-06: norms of latents have that");
  }
}

// The first layers are dense.
void ReadLayers(HfReader& reader) {
  FieldReader& fields = reader.fields;
  v1::ModelConfig& model = reader.model;
  const int64_t first =
      fields.Integer({"first_k_dense_replace", 3, 0, INT32_MAX});
  const int64_t ffn = fields.Integer({"intermediate_size", 18432, 1, kMaxFfn});
  const int64_t dense = std::min<int64_t>(first, model.num_layers());
  for (int64_t i = 0; i < model.num_layers(); ++i) {
    model.mutable_pattern()->append(i < dense ? "[+-]" : "[+E]");
  }
  if (dense > 0) model.set_ffn_hidden_size(ffn);
  if (dense == model.num_layers()) model.clear_moe();
}

}  // namespace

void ReadHfDeepseekRouter(const HfDeepseekRouter& absent, HfReader& reader) {
  constexpr char kScaling[] = "routed_scaling_factor";
  FieldReader& fields = reader.fields;
  v1::MoeConfig& moe = *reader.model.mutable_moe();
  moe.set_num_experts(ReadTwoNames("n_routed_experts", "num_local_experts",
                                   absent.experts, reader));
  moe.set_top_k(ReadTopK(absent.top_k, moe.num_experts(),
                         {"n_routed_experts", "num_local_experts"}, reader));
  ReadExpertGroups(absent, reader);
  moe.set_score_function(v1::SCORE_FUNCTION_SIGMOID);
  moe.mutable_expert_bias();
  moe.set_top_k_normalization(fields.Boolean("norm_topk_prob", true)
                                  ? v1::TOP_K_NORMALIZATION_RENORMALIZED
                                  : v1::TOP_K_NORMALIZATION_RAW);
  const double scaling = fields.Number(kScaling, absent.scaling);
  if (!(scaling >= 1e-30 && scaling <= 1e30)) {
    fields.Refuse(kScaling, "must be 1e-30 to 1e30");
  }
  moe.set_scaling_factor(scaling);
}

void ReadHfDeepseekV3(HfReader& reader) {
  FieldReader& fields = reader.fields;
  ReadWidths({129280, 7168, "rms_norm_eps", 1e-6}, reader);
  ReadNumLayers(61, reader);
  ReadMla(reader);
  ReadHfDeepseekRouter({256, 8, 8, 4, 2.5}, reader);
  v1::MoeConfig& moe = *reader.model.mutable_moe();
  moe.set_expert_hidden_size(
      fields.Integer({"moe_intermediate_size", 2048, 1, kMaxFfn}));
  const int64_t shared = fields.Integer({"n_shared_experts", 1, 1, 4096});
  const int64_t shared_width = shared * moe.expert_hidden_size();
  if (shared_width > kMaxFfn) {
    fields.Refuse("n_shared_experts",
                  absl::StrCat("times moe_intermediate_size, ", shared_width,
                               " must be at most ", kMaxFfn));
  } else {
    moe.set_shared_expert_hidden_size(shared_width);
  }
  ReadLayers(reader);
  MustBe("moe_layer_freq", 1, "all but the first layers have experts", reader);
  MustBe("scoring_func", "sigmoid", "scores are sigmoids", reader);
  MustBe("topk_method", "noaux_tc", "experts are chosen with a bias", reader);
  CheckSilu("hidden_act", reader);
  ReadPaddingToken(/*absent=*/std::nullopt, reader);
  CheckDropout("attention_dropout", /*nullable=*/false, reader);
  // The code's file, and how it was run.
  TakeAll({"auto_map", "ep_size"}, reader);
}

}  // namespace weft::checkpoint
