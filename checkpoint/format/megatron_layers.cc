#include "checkpoint/format/megatron_layers.h"

#include <cmath>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft::checkpoint {
namespace {

using nlohmann::json;

constexpr size_t kMaxPattern = 4096;
constexpr char kPattern[] = "hybrid_layer_pattern";

// Of the part before a slash, also those in groups.
int64_t CountSymbols(const std::string& pattern) {
  return absl::c_count_if(pattern.substr(0, pattern.find('/')),
                          [](char c) { return c != '[' && c != ']'; });
}

// Empty when it is refused. What else must hold of a pattern is a rule of jobs.
std::string ReadPatternText(const json& value, FieldReader& fields) {
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  if (text.empty() || text.size() > kMaxPattern) {
    fields.Refuse(kPattern,
                  absl::StrCat("must be text of 1 to ", kMaxPattern, " bytes"));
    return "";
  }
  const size_t unknown = text.find_first_not_of("M*+-E[]/");
  if (unknown == std::string::npos) return text;
  fields.Refuse(kPattern, absl::StrCat("\"", text.substr(unknown, 1),
                                       "\" is not supported: layers are of "
                                       "\"M\", \"*\", \"+\", \"-\", \"E\""));
  return "";
}

double NumberIn(const char* name, double absent, double min, double max,
                FieldReader& fields) {
  const double value = fields.Number(name, absent);
  if (value >= min && value <= max) return value;
  fields.Refuse(name, absl::StrCat("must be ", min, " to ", max));
  return absent;
}

void ReadYarn(FieldReader& fields, v1::YarnConfig& yarn) {
  fields.Require({"rotary_scaling_factor", "original_max_position_embeddings",
                  "beta_fast", "beta_slow", "mscale", "mscale_all_dim"});
  yarn.set_factor(NumberIn("rotary_scaling_factor", 1, 1, 1e6, fields));
  yarn.set_original_positions(
      fields.Integer({"original_max_position_embeddings", 1, 1, 1048576}));
  yarn.set_beta_fast(NumberIn("beta_fast", 32, 1e-30, 1e6, fields));
  yarn.set_beta_slow(NumberIn("beta_slow", 1, 1e-30, 1e6, fields));
  yarn.set_mscale(NumberIn("mscale", 1, 0, 1000, fields));
  yarn.set_mscale_all_dim(NumberIn("mscale_all_dim", 0, 0, 1000, fields));
}

// Positions of MLA. Without YaRN mscale_all_dim still scales scores there.
void ReadMlaPositions(FieldReader& fields, v1::MlaConfig& mla) {
  constexpr char kType[] = "rope_type";
  const json* type = fields.Take(kType);
  if (type != nullptr && *type == "yarn") {
    ReadYarn(fields, *mla.mutable_yarn());
  } else if (type == nullptr || *type != "rope") {
    fields.Refuse(kType, "must be \"rope\" or \"yarn\"");
  } else if (fields.Number("rotary_scaling_factor", 1) > 1 &&
             fields.Number("mscale_all_dim", 0) != 0) {
    fields.Refuse("mscale_all_dim",
                  "must be 0 with a rope_type of \"rope\": it would scale "
                  "scores");
  }
  if (fields.Number("rotary_percent", 1) != 1) {
    fields.Refuse("rotary_percent", "must be 1 with multi_latent_attention");
  }
}

void ReadMla(FieldReader& fields, v1::MlaConfig& mla) {
  constexpr char kRotated[] = "qk_pos_emb_head_dim";
  fields.Require(
      {"kv_lora_rank", "qk_head_dim", kRotated, "v_head_dim", "rope_type"});
  mla.set_q_lora_rank(fields.Integer({"q_lora_rank", 0, 1, 65536, true}));
  mla.set_kv_lora_rank(fields.Integer({"kv_lora_rank", 1, 1, 65536}));
  mla.set_qk_nope_head_dim(fields.Integer({"qk_head_dim", 1, 1, 1024}));
  mla.set_qk_rope_head_dim(fields.Integer({kRotated, 2, 2, 1024}));
  if (mla.qk_rope_head_dim() % 2 != 0) fields.Refuse(kRotated, "must be even");
  mla.set_v_head_dim(fields.Integer({"v_head_dim", 1, 1, 1024}));
  if (fields.IsGiven("rope_type")) ReadMlaPositions(fields, mla);
  if (!fields.Boolean("qk_layernorm", true)) {
    fields.Refuse("qk_layernorm",
                  "must be true with multi_latent_attention: latents have "
                  "norms");
  }
}

// Share of a head that is rotated.
void ReadRotated(FieldReader& fields, const v1::ModelConfig& model,
                 v1::AttentionConfig& attention) {
  constexpr char kShare[] = "rotary_percent";
  const double share = fields.Number(kShare, 1);
  if (share == 1) return;
  const int64_t width = attention.head_dim() != 0
                            ? attention.head_dim()
                            : model.hidden_size() / attention.num_heads();
  const double rotated = share * static_cast<double>(width);
  if (!(share > 0 && share <= 1) || std::fmod(rotated, 2) != 0) {
    fields.Refuse(kShare, absl::StrCat("must be above 0 to 1, an even number "
                                       "of the ",
                                       width, " elements of a head"));
  }
  attention.set_rotary_fraction(share);
}

void ReadGroupedQuery(FieldReader& fields, const v1::ModelConfig& model,
                      v1::AttentionConfig& attention) {
  const int64_t heads = attention.num_heads();
  const int64_t groups =
      fields.Integer({"num_query_groups", heads, 1, 1024, true});
  if (fields.AreFine({"num_attention_heads", "num_query_groups"}) &&
      heads % groups != 0) {
    fields.Refuse(
        "num_query_groups",
        absl::StrCat(groups, " must divide num_attention_heads, ", heads));
  }
  const int64_t width = fields.Integer({"kv_channels", 0, 2, 1024, true});
  if (width % 2 != 0) fields.Refuse("kv_channels", "must be even");
  attention.set_num_kv_heads(groups);
  attention.set_head_dim(width);  // 0: hidden_size / num_heads, as there
  attention.set_qk_norm(fields.Boolean("qk_layernorm", false));
  if (!attention.no_rope()) ReadRotated(fields, model, attention);
}

// Heads and the base of rotation, which both kinds of attention have.
void ReadAttention(FieldReader& fields, v1::AttentionConfig& attention) {
  constexpr char kPositions[] = "position_embedding_type";
  attention.set_num_heads(fields.Integer({"num_attention_heads", 1, 1, 1024}));
  const double theta = fields.Number("rotary_base", 10000);
  if (!(theta > 1)) fields.Refuse("rotary_base", "must be above 1");
  const json* positions = fields.Take(kPositions);
  if (positions != nullptr && *positions == "none") {
    attention.set_no_rope(true);
    return;
  }
  if (positions != nullptr && *positions != "rope") {
    fields.Refuse(kPositions, "must be \"rope\" or \"none\"");
  }
  attention.set_rope_theta(theta);
}

void ReadMamba(FieldReader& fields, v1::ModelConfig& model) {
  fields.Require({"mamba_num_heads", "mamba_head_dim", "mamba_num_groups",
                  "mamba_state_dim"});
  v1::MambaConfig& mamba = *model.mutable_mamba();
  mamba.set_num_heads(fields.Integer({"mamba_num_heads", 1, 1, 4096}));
  mamba.set_head_dim(fields.Integer({"mamba_head_dim", 1, 1, 1024}));
  mamba.set_num_groups(fields.Integer({"mamba_num_groups", 1, 1, 4096}));
  mamba.set_state_size(fields.Integer({"mamba_state_dim", 1, 1, 1024}));
  mamba.set_conv_width(fields.Integer({"mamba_conv_width", 4, 2, 16}));
  if (fields.AreFine({"mamba_num_heads", "mamba_num_groups"}) &&
      mamba.num_heads() % mamba.num_groups() != 0) {
    fields.Refuse(
        "mamba_num_groups",
        absl::StrCat(mamba.num_groups(), " must divide mamba_num_heads, ",
                     mamba.num_heads()));
  }
  // What Megatron-Core's mixers have, whatever the other norms do.
  constexpr double kMixerEpsilon = 1e-5;
  const double epsilon = model.norm_epsilon();
  if (fields.Number("mamba_norm_epsilon", kMixerEpsilon) != epsilon) {
    fields.Refuse("mamba_norm_epsilon",
                  absl::StrCat("must be as layernorm_epsilon, ", epsilon));
  }
}

}  // namespace

void ReadMegatronPattern(FieldReader& fields, v1::ModelConfig& model) {
  constexpr char kClass[] = "model_class";
  const int64_t layers = fields.Integer({"num_layers", 1, 1, 1024});
  const json* name = fields.Take(kClass);
  const json* pattern = fields.TakeUnlessNull(kPattern);
  const bool is_hybrid = name != nullptr && *name == "HybridModel";
  model.set_num_layers(layers);
  if (!is_hybrid) {
    if (name != nullptr && *name != "GPTModel") {
      fields.Refuse(kClass, "must be \"GPTModel\" or \"HybridModel\"");
    } else if (pattern != nullptr) {
      fields.Refuse(kPattern, "must be null but for a HybridModel");
    }
    return;
  }
  if (pattern == nullptr) {
    fields.Refuse(kPattern, "must be given for a HybridModel");
    return;
  }
  model.set_pattern(ReadPatternText(*pattern, fields));
  if (model.pattern().empty()) return;
  const int64_t symbols = CountSymbols(model.pattern());
  if (symbols != layers && fields.AreFine({"num_layers"})) {
    fields.Refuse("num_layers", absl::StrCat("must be the ", symbols,
                                             " symbols of ", kPattern));
  }
}

void ReadMegatronMixers(FieldReader& fields, v1::ModelConfig& model) {
  constexpr char kMla[] = "multi_latent_attention";
  const absl::string_view pattern = model.pattern();
  const auto has = [&](char symbol) {
    return pattern.find(symbol) != absl::string_view::npos;
  };
  const bool is_latent = fields.Boolean(kMla, false);
  const bool has_latent = pattern.empty() ? is_latent : has('+');
  if (has_latent && !is_latent) {
    fields.Refuse(kMla, absl::StrCat("must be true with \"+\" in ", kPattern));
  }
  const bool has_plain = pattern.empty() ? !is_latent : has('*');
  v1::AttentionConfig attention;
  ReadAttention(fields, attention);
  if (has_plain) ReadGroupedQuery(fields, model, attention);
  if (has_latent && is_latent) ReadMla(fields, *model.mutable_mla());
  if (has_plain || has_latent) *model.mutable_attention() = attention;
  if (has('M')) ReadMamba(fields, model);
}

void ReadMegatronMtp(FieldReader& fields, v1::ModelConfig& model) {
  constexpr char kDepth[] = "mtp_num_layers";
  const int64_t depth = fields.Integer({kDepth, 0, 1, 16, true});
  const bool is_in_pattern = model.pattern().find('/') != std::string::npos;
  if (depth != 0 && !model.pattern().empty()) {
    fields.Refuse(kDepth,
                  absl::StrCat("must be null with ", kPattern,
                               ", where each part after a slash is a depth"));
  }
  const double factor =
      NumberIn("mtp_loss_scaling_factor", 0.1, 1e-30, 1000, fields);
  if (depth == 0 && !is_in_pattern) return;
  v1::MtpConfig& mtp = *model.mutable_mtp();
  mtp.set_depth(depth);
  mtp.set_loss_factor(factor);
  // A depth is a layer like the last one.
  const int dense = model.dense_layers_size();
  mtp.set_dense(model.has_moe() && dense > 0 &&
                model.dense_layers(dense - 1) == model.num_layers() - 1);
}

}  // namespace weft::checkpoint
