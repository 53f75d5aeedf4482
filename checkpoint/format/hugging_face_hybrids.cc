// Readers of Mamba-2, Bamba, GraniteMoeHybrid and Nemotron-H.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/format/hugging_face_deepseek.h"
#include "checkpoint/format/hugging_face_reader.h"

namespace weft::checkpoint {
namespace {

using nlohmann::json;

constexpr int64_t kMaxFfn = 1048576;

constexpr HfMamba kMamba2 = {{"num_heads", 128, 1, 4096},
                             {"head_dim", 64, 1, 1024},
                             {"n_groups", 8, 1, 4096},
                             {"state_size", 128, 1, 1024},
                             {"conv_kernel", 4, 2, 16},
                             {"chunk_size", 256, 1, 1024},
                             "use_conv_bias",
                             "use_bias",
                             "expand",
                             /*norm_by_group=*/false};

// Also of GraniteMoeHybrid.
constexpr HfMamba kBambaMamba = {{"mamba_n_heads", 128, 1, 4096},
                                 {"mamba_d_head", 0, 1, 1024},
                                 {"mamba_n_groups", 1, 1, 4096},
                                 {"mamba_d_state", 256, 1, 1024},
                                 {"mamba_d_conv", 4, 2, 16},
                                 {"mamba_chunk_size", 256, 1, 1024},
                                 "mamba_conv_bias",
                                 "mamba_proj_bias",
                                 "mamba_expand",
                                 /*norm_by_group=*/false};

// `expand` says nothing there: heads and head_dim make the width.
constexpr HfMamba kNemotronMamba = {{"mamba_num_heads", 128, 1, 4096},
                                    {"mamba_head_dim", 64, 1, 1024},
                                    {"n_groups", 8, 1, 4096},
                                    {"ssm_state_size", 128, 1, 1024},
                                    {"conv_kernel", 4, 2, 16},
                                    {"chunk_size", 128, 1, 1024},
                                    "use_conv_bias",
                                    "use_bias",
                                    /*expand=*/nullptr,
                                    /*norm_by_group=*/true};

// Of a model whose lists have the new names or the old ones.
const std::vector<HfLayerWord>& MixerWords() {
  static const auto* words = new std::vector<HfLayerWord>{
      {"linear_attention", 'M'},
      {"full_attention", '*'},
      {"mamba", 'M'},
      {"attention", '*'},
  };
  return *words;
}

const std::vector<HfLayerWord>& NemotronWords() {
  static const auto* words = new std::vector<HfLayerWord>{
      {"linear_attention", 'M'},
      {"full_attention", '*'},
      {"mamba", 'M'},
      {"attention", '*'},
      {"moe", 'E'},
      {"mlp", '-'},
  };
  return *words;
}

bool Has(const std::string& symbols, char symbol) {
  return symbols.find(symbol) != std::string::npos;
}

// All is read whether there are layers that have it or not, so that no field is
// unknown.
void ClearWhatNoLayerHas(v1::ModelConfig& model) {
  const std::string& pattern = model.pattern();
  if (!Has(pattern, 'M')) model.clear_mamba();
  if (!Has(pattern, 'E')) model.clear_moe();
  if (!Has(pattern, '-')) model.clear_ffn_hidden_size();
  if (!Has(pattern, '*')) model.clear_attention();
}

// A multiplier of Granite, 1 where it is absent.
double ReadMultiplier(const char* name, HfReader& reader) {
  const double value = reader.fields.Number(name, 1);
  if (!(value >= 1e-30 && value <= 1e30)) {
    reader.fields.Refuse(name, "must be 1e-30 to 1e30");
  }
  return value;
}

void ReadBiases(HfReader& reader) {
  const bool has_biases = reader.fields.Boolean("attention_bias", false);
  reader.model.mutable_attention()->set_qkv_bias(has_biases);
  reader.model.mutable_attention()->set_output_bias(has_biases);
}

// Symbols of Bamba's mixers: attention in the layers of attn_layer_indices.
std::string ReadAttentionIndices(HfReader& reader) {
  constexpr char kName[] = "attn_layer_indices";
  const size_t count = reader.model.num_layers();
  std::string symbols(count, 'M');
  const json* list = reader.fields.TakeUnlessNull(kName);
  if (list == nullptr) return symbols;
  bool is_fine = list->is_array();
  for (size_t i = 0; is_fine && i < list->size(); ++i) {
    const json& layer = (*list)[i];
    is_fine = layer.is_number_unsigned() && layer.get<uint64_t>() < count;
    if (is_fine) symbols[layer.get<size_t>()] = '*';
  }
  if (!is_fine) {
    reader.fields.Refuse(
        kName, absl::StrCat("must be a list of layers from 0 to ", count - 1));
  }
  return symbols;
}

std::string ReadGraniteMixers(HfReader& reader) {
  const int64_t count = reader.model.num_layers();
  for (const char* name : {"layer_types", "layers_block_type"}) {
    const json* list = reader.fields.TakeUnlessNull(name);
    if (list == nullptr) continue;
    MustBeNull("layers_block_type", "layer_types says it", reader);
    return ReadLayerWords(name, *list, MixerWords(), count, reader);
  }
  return std::string(count, 'M');
}

// Queries and keys are rotated only when position_embedding_type says so.
void ReadGranitePositions(HfReader& reader) {
  constexpr char kName[] = "position_embedding_type";
  const json* type = reader.fields.TakeUnlessNull(kName);
  ReadRope({/*theta=*/1e4}, reader);
  if (type != nullptr && *type == "rope") return;
  if (type != nullptr && *type != "nope") {
    reader.fields.Refuse(kName, "must be \"rope\", \"nope\" or null");
  }
  reader.model.mutable_attention()->clear_rope_theta();
  reader.model.mutable_attention()->set_no_rope(true);
}

// What follows a mixer: experts with a shared one, or, with no experts, a dense
// feed-forward of the width of the shared one.
char ReadGraniteFeedForward(HfReader& reader) {
  FieldReader& fields = reader.fields;
  const int64_t experts = fields.Integer({"num_local_experts", 8, 0, 4096});
  // Without experts it may be any.
  const int64_t top_k = ReadTopK(2, experts == 0 ? INT32_MAX : experts,
                                 {"num_local_experts"}, reader);
  const int64_t width =
      fields.Integer({"intermediate_size", 11008, 1, kMaxFfn});
  const int64_t shared =
      fields.Integer({"shared_intermediate_size", 1024, 1, kMaxFfn});
  if (experts == 0) {
    reader.model.set_ffn_hidden_size(shared);
    return '-';
  }
  v1::MoeConfig& moe = *reader.model.mutable_moe();
  moe.set_num_experts(experts);
  moe.set_top_k(top_k);
  moe.set_expert_hidden_size(width);
  moe.set_shared_expert_hidden_size(shared);
  moe.set_top_k_normalization(v1::TOP_K_NORMALIZATION_RENORMALIZED);
  return 'E';
}

// The layers of Nemotron-H, a symbol each; empty when they are refused.
std::string ReadNemotronLayers(HfReader& reader) {
  constexpr char kPattern[] = "hybrid_override_pattern";
  FieldReader& fields = reader.fields;
  std::string symbols;
  for (const char* name : {"layers_block_type", "layer_types"}) {
    const json* list = fields.TakeUnlessNull(name);
    if (list == nullptr) continue;
    const std::string read =
        ReadLayerWords(name, *list, NemotronWords(), 0, reader);
    if (!symbols.empty() && read != symbols) {
      fields.Refuse(name, "must be as layers_block_type");
    }
    symbols = read;
  }
  const json* pattern = fields.TakeUnlessNull(kPattern);
  if (pattern == nullptr) return symbols.empty() ? "ME*-" : symbols;
  const std::string text =
      pattern->is_string() ? pattern->get<std::string>() : "";
  if (text.empty() || text.size() > 1024 ||
      text.find_first_not_of("ME*-") != std::string::npos) {
    fields.Refuse(kPattern, "must be 1 to 1024 of \"M\", \"E\", \"*\", \"-\"");
  } else if (!symbols.empty() && symbols != text) {
    fields.Refuse(kPattern, "must be as layers_block_type");
  }
  return text;
}

void ReadNemotronActivation(HfReader& reader) {
  constexpr char kName[] = "mlp_hidden_act";
  const json* name = reader.fields.Take(kName);
  if (name != nullptr && *name == "gelu") {
    reader.model.set_mlp_activation(v1::MLP_ACTIVATION_GELU);
    return;
  }
  if (name != nullptr && *name != "relu2") {
    reader.fields.Refuse(kName, "must be \"relu2\" or \"gelu\"");
  }
  reader.model.set_mlp_activation(v1::MLP_ACTIVATION_SQUARED_RELU);
}

void ReadNemotronExperts(HfReader& reader) {
  FieldReader& fields = reader.fields;
  v1::MoeConfig& moe = *reader.model.mutable_moe();
  ReadHfDeepseekRouter({8, 2, 1, 1, 1.0}, reader);
  moe.set_expert_hidden_size(
      fields.Integer({"moe_intermediate_size", 7688, 1, kMaxFfn}));
  moe.set_shared_expert_hidden_size(fields.Integer(
      {"moe_shared_expert_intermediate_size", 7688, 1, kMaxFfn}));
  MustBe("n_shared_experts", 1, "moe_shared_expert_intermediate_size is one's",
         reader);
  MustBeNull("moe_latent_size", "experts take the hidden state", reader);
}

// Time steps are at least time_step_min, which in other families is only of
// initial values; where kernels compute them, at least time_step_limit's.
void ReadNemotronTimeSteps(HfReader& reader) {
  constexpr char kMin[] = "time_step_min";
  constexpr char kLimit[] = "time_step_limit";
  ReadTimeStepLimit(reader);
  v1::MambaConfig& mamba = *reader.model.mutable_mamba();
  if (reader.fields.AreFine({kLimit}) &&
      (mamba.time_step_min() != 0 || mamba.time_step_max() != 0)) {
    reader.fields.Refuse(kLimit,
                         "must be 0 and infinite: the library keeps to "
                         "time_step_min instead");
  }
  mamba.clear_time_step_max();
  const double least = reader.fields.Number(kMin, 0.001);
  if (!(least >= 0 && least <= 1e30)) {
    reader.fields.Refuse(kMin, "must be 0 to 1e30");
  }
  mamba.set_time_step_min(least);
}

void CheckNemotron(HfReader& reader) {
  MustBe("mlp_bias", false, "feed-forward has no biases", reader);
  MustBe("mamba_proj_bias", reader.model.mamba().projection_bias(),
         "use_bias says it", reader);
  MustBe("norm_eps", reader.model.norm_epsilon(), "layer_norm_epsilon says it",
         reader);
  MustBeNull("sliding_window", "every position attends to all before it",
             reader);
  CheckSilu("mamba_hidden_act", reader);
  CheckDropout("attention_dropout", /*nullable=*/false, reader);
  CheckDropout("hidden_dropout", /*nullable=*/false, reader);
  // Positions have no part in attention; the rest is of initial values, of
  // generation, or of how the library computes.
  TakeAll(
      {"auto_map", "expand", "mamba_ssm_cache_dtype",
       "moe_shared_expert_overlap", "mtp_hybrid_override_pattern",
       "mtp_layers_block_type", "num_logits_to_keep", "pad_token_id",
       "partial_rotary_factor", "rescale_prenorm_residual", "residual_in_fp32",
       "rope_theta", "time_step_floor", "time_step_max", "use_mamba_kernels"},
      reader);
  ClearWhatNoLayerHas(reader.model);
  if (reader.model.pattern().empty()) return;  // it is refused
  MustBe("num_hidden_layers", reader.model.num_layers(),
         "layers_block_type has as many", reader);
}

}  // namespace

void ReadHfMamba2(HfReader& reader) {
  ReadWidths({32768, 4096, "layer_norm_epsilon", 1e-5}, reader);
  ReadNumLayers(64, reader);
  reader.model.set_pattern(std::string(reader.model.num_layers(), 'M'));
  ReadMamba(kMamba2, reader);
  ReadTimeStepLimit(reader);
  CheckSilu("hidden_act", reader);
  MustBe("rms_norm", true, "a mixer's norm is an RMSNorm", reader);
  // Every row of the embedding is trained, that of padding, too; the rest is of
  // initial values, or of other number formats.
  TakeAll(
      {"pad_token_id", "rescale_prenorm_residual", "residual_in_fp32",
       "time_step_floor", "time_step_max", "time_step_min", "time_step_rank"},
      reader);
}

void ReadHfBamba(HfReader& reader) {
  FieldReader& fields = reader.fields;
  ReadWidths({128000, 4096, "rms_norm_eps", 1e-5}, reader);
  ReadNumLayers(32, reader);
  reader.model.set_pattern(GroupedPattern(ReadAttentionIndices(reader), '-'));
  ReadHeads({32, 8, /*kv_nullable=*/true}, reader);
  ReadRope({/*theta=*/1e4, /*fraction=*/0.5}, reader);
  ReadBiases(reader);
  ReadMamba(kBambaMamba, reader);
  ReadTimeStepLimit(reader);
  reader.model.set_ffn_hidden_size(
      fields.Integer({"intermediate_size", 14336, 1, kMaxFfn}));
  CheckSilu("hidden_act", reader);
  ReadPaddingToken(/*absent=*/0, reader);
  MustBe("mlp_bias", false, "feed-forward has no biases", reader);
  CheckDropout("attention_dropout", /*nullable=*/false, reader);
  if (fields.Number("z_loss_coefficient", 0) != 0) {
    fields.Refuse("z_loss_coefficient", "must be 0: logits have no loss");
  }
  // Of generation, and of initial values.
  TakeAll({"num_logits_to_keep", "time_step_max", "time_step_min"}, reader);
  ClearWhatNoLayerHas(reader.model);
}

void ReadHfGraniteMoeHybrid(HfReader& reader) {
  v1::ModelConfig& model = reader.model;
  ReadWidths({32000, 4096, "rms_norm_eps", 1e-6}, reader);
  ReadNumLayers(32, reader);
  ReadHeads({32, /*kv_heads=*/0, /*kv_nullable=*/true}, reader);
  ReadGranitePositions(reader);
  ReadBiases(reader);
  ReadMamba(kBambaMamba, reader);
  ReadTimeStepLimit(reader);
  const std::string mixers = ReadGraniteMixers(reader);
  model.set_pattern(GroupedPattern(mixers, ReadGraniteFeedForward(reader)));
  CheckRouterLoss(reader);
  model.mutable_attention()->set_softmax_scale(
      ReadMultiplier("attention_multiplier", reader));
  model.set_embedding_multiplier(
      ReadMultiplier("embedding_multiplier", reader));
  model.set_residual_multiplier(ReadMultiplier("residual_multiplier", reader));
  model.set_logits_divisor(ReadMultiplier("logits_scaling", reader));
  MustBe("normalization_function", "rmsnorm", "norms are RMSNorms", reader);
  CheckSilu("hidden_act", reader);
  ReadPaddingToken(/*absent=*/std::nullopt, reader);
  CheckDropout("attention_dropout", /*nullable=*/false, reader);
  // Of initial values.
  TakeAll({"init_method", "time_step_max", "time_step_min"}, reader);
  ClearWhatNoLayerHas(model);
}

void ReadHfNemotronH(HfReader& reader) {
  FieldReader& fields = reader.fields;
  ReadWidths({131072, 4096, "layer_norm_epsilon", 1e-5}, reader);
  reader.model.set_pattern(ReadNemotronLayers(reader));
  reader.model.set_num_layers(reader.model.pattern().size());
  ReadHeads({32, 8, /*kv_nullable=*/true, /*head_dim=*/128}, reader);
  reader.model.mutable_attention()->set_no_rope(true);
  ReadBiases(reader);
  ReadMamba(kNemotronMamba, reader);
  ReadNemotronTimeSteps(reader);
  ReadNemotronExperts(reader);
  reader.model.set_ffn_hidden_size(
      fields.Integer({"intermediate_size", 21504, 1, kMaxFfn}));
  ReadNemotronActivation(reader);
  CheckNemotron(reader);
}

}  // namespace weft::checkpoint
