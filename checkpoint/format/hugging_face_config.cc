#include "checkpoint/format/hugging_face_config.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "checkpoint/format/json_fields.h"
#include "nlohmann/json.hpp"

namespace weft::checkpoint {
namespace {

using nlohmann::json;

constexpr int64_t kMaxInt = INT32_MAX;

// A family, and what its fields are when config.json does not have them.
struct Family {
  HfFamily family;
  const char* model_type;
  const char* architecture;
  int64_t vocab_size;
  int64_t hidden_size;
  int64_t intermediate_size;
  int64_t layers;
  int64_t heads;
  int64_t kv_heads;  // 0: as many as `heads`
  double norm_epsilon;
  double rope_theta;
  int64_t experts;  // 0: the family has none
  int64_t top_k;
  int64_t expert_ffn;
  int64_t shared_ffn;
};

// In the order of HfFamily.
constexpr Family kFamilies[] = {
    {HfFamily::kLlama, "llama", "LlamaForCausalLM", 32000, 4096, 11008, 32, 32,
     0, 1e-6, 1e4, 0, 0, 0, 0},
    {HfFamily::kMixtral, "mixtral", "MixtralForCausalLM", 32000, 4096, 14336,
     32, 32, 8, 1e-5, 1e6, 8, 2, 0, 0},
    {HfFamily::kQwen2Moe, "qwen2_moe", "Qwen2MoeForCausalLM", 151936, 2048,
     5632, 24, 16, 16, 1e-6, 1e4, 60, 4, 1408, 5632},
    {HfFamily::kQwen3Moe, "qwen3_moe", "Qwen3MoeForCausalLM", 151936, 2048,
     6144, 24, 32, 4, 1e-6, 1e4, 128, 8, 768, 0},
};

// Fields that cannot change what is trained, and why.
struct WithoutEffect {
  const char* name;
  const char* why;
};

constexpr WithoutEffect kWithoutEffect[] = {
    {"_name_or_path", "where the model was loaded from"},
    {"bos_token_id", "for generation; the dataset has its own tokens"},
    {"dtype", "of the files, whose tensors name their own"},
    {"eos_token_id", "for generation; the dataset has its own tokens"},
    {"id2label", "names classes of a classifier"},
    {"initializer_range", "weights come from the checkpoint"},
    {"label2id", "names classes of a classifier"},
    {"max_position_embeddings", "a length; default rotary positions have none"},
    {"max_window_layers", "of sliding windows, which are refused"},
    {"num_nextn_predict_layers",
     "of layers beyond the last; where a checkpoint has them, they are left "
     "over"},
    {"output_attentions", "what a forward pass returns"},
    {"output_hidden_states", "what a forward pass returns"},
    {"pretraining_tp", "splits products into parts of the same sum"},
    {"problem_type", "of a classifier"},
    {"return_dict", "how a forward pass returns"},
    {"torch_dtype", "of the files, whose tensors name their own"},
    {"transformers_version", "who wrote the file"},
    {"use_cache", "for generation"},
};

// One call reads one config.json.
class Parser {
 public:
  Parser(const Family& family, const json& object)
      : family_(family), fields_(object) {}

  absl::StatusOr<HfConfig> Parse();

 private:
  bool Is(HfFamily family) const { return family_.family == family; }
  bool IsQwen() const {
    return Is(HfFamily::kQwen2Moe) || Is(HfFamily::kQwen3Moe);
  }

  void ReadSizes();
  void ReadAttention();
  void ReadHeads(v1::AttentionConfig& attention);
  void ReadRope(v1::AttentionConfig& attention);
  double ReadRopeDict(const char* name, double fallback);
  void ReadMoe();
  void ReadExperts(v1::MoeConfig& moe);
  void ReadRouter(v1::MoeConfig& moe);
  void ReadDenseLayers();
  std::set<int64_t> ReadMlpOnlyLayers();
  void CheckArchitecture();
  void CheckActivation();
  void CheckPadding();
  void CheckWindows();
  void CheckDropout();

  const Family& family_;
  FieldReader fields_;
  v1::ModelConfig model_;
};

void Parser::ReadSizes() {
  model_.set_vocab_size(
      fields_.Integer({"vocab_size", family_.vocab_size, 2, 1048576}));
  model_.set_hidden_size(
      fields_.Integer({"hidden_size", family_.hidden_size, 1, 65536}));
  model_.set_num_layers(
      fields_.Integer({"num_hidden_layers", family_.layers, 1, 1024}));
  model_.set_tie_embeddings(fields_.Boolean("tie_word_embeddings", false));
  const double epsilon = fields_.Number("rms_norm_eps", family_.norm_epsilon);
  if (!(epsilon >= 1e-30 && epsilon < 1)) {
    fields_.Refuse("rms_norm_eps", "must be 1e-30 to below 1");
  }
  model_.set_norm_epsilon(epsilon);
}

void Parser::ReadHeads(v1::AttentionConfig& attention) {
  const int64_t hidden = model_.hidden_size();
  const int64_t heads =
      fields_.Integer({"num_attention_heads", family_.heads, 1, 1024});
  // In families where it may be null, that means as many as heads.
  const bool nullable = Is(HfFamily::kLlama) || Is(HfFamily::kMixtral);
  const bool as_heads = family_.kv_heads == 0 ||
                        (nullable && fields_.IsNull("num_key_value_heads"));
  const int64_t kv_heads =
      fields_.Integer({"num_key_value_heads",
                       as_heads ? heads : family_.kv_heads, 1, 1024, nullable});
  if (fields_.AreFine({"num_attention_heads", "num_key_value_heads"}) &&
      heads % kv_heads != 0) {
    fields_.Refuse(
        "num_key_value_heads",
        absl::StrCat(kv_heads, " must divide num_attention_heads, ", heads));
  }
  int64_t head_dim = fields_.Integer({"head_dim", 0, 2, 1024, true});
  if (fields_.AreFine({"hidden_size", "num_attention_heads", "head_dim"})) {
    if (head_dim == 0 && hidden % heads != 0) {
      fields_.Refuse(
          "head_dim",
          absl::StrCat("must be given where num_attention_heads, ", heads,
                       ", does not divide hidden_size, ", hidden));
    } else if (head_dim == 0) {
      head_dim = hidden / heads;
    }
    if (head_dim % 2 != 0 || head_dim > 1024) {
      fields_.Refuse("head_dim",
                     absl::StrCat(head_dim, " must be even and at most 1024"));
    }
  }
  attention.set_num_heads(heads);
  attention.set_num_kv_heads(kv_heads);
  attention.set_head_dim(head_dim);
}

void Parser::ReadAttention() {
  v1::AttentionConfig& attention = *model_.mutable_attention();
  ReadHeads(attention);
  ReadRope(attention);
  attention.set_qk_norm(Is(HfFamily::kQwen3Moe));
  if (Is(HfFamily::kLlama) || Is(HfFamily::kQwen3Moe)) {
    const bool bias = fields_.Boolean("attention_bias", false);
    attention.set_qkv_bias(bias);
    attention.set_output_bias(bias);
  } else if (Is(HfFamily::kQwen2Moe)) {
    attention.set_qkv_bias(fields_.Boolean("qkv_bias", true));
  }
}

// The base of the rotary frequencies in the object `name`, whose other fields
// must not change the rotation.
double Parser::ReadRopeDict(const char* name, double fallback) {
  const json* dict = fields_.TakeUnlessNull(name);
  if (dict == nullptr) return fallback;
  if (!dict->is_object()) {
    fields_.Refuse(name, "must be an object or null");
    return fallback;
  }
  FieldReader rope(*dict, absl::StrCat(name, "."));
  for (const char* type : {"rope_type", "type"}) {  // the new name, the old
    const json* value = rope.Take(type);
    if (value != nullptr && *value != "default") {
      rope.Refuse(type, "must be \"default\": positions are not scaled");
    }
  }
  if (rope.Number("partial_rotary_factor", 1) != 1) {
    rope.Refuse("partial_rotary_factor",
                "must be 1: rotary positions are of whole heads");
  }
  const double theta = rope.Number("rope_theta", fallback);
  if (rope.IsGiven("rope_theta") && fields_.IsGiven("rope_theta") &&
      theta != fallback) {
    rope.Refuse("rope_theta", absl::StrCat("must be as rope_theta beside ",
                                           name, ", ", fallback));
  }
  if (!(theta > 1)) rope.Refuse("rope_theta", "must be above 1");
  rope.RefuseTheRest("is not known for rotary positions of type \"default\"");
  fields_.Append(rope);
  return theta;
}

void Parser::ReadRope(v1::AttentionConfig& attention) {
  double theta = fields_.Number("rope_theta", family_.rope_theta);
  if (!(theta > 1)) fields_.Refuse("rope_theta", "must be above 1");
  const bool has_both = fields_.TakeUnlessNull("rope_parameters") != nullptr &&
                        fields_.TakeUnlessNull("rope_scaling") != nullptr;
  if (has_both) {
    fields_.Refuse("rope_scaling", "must be null beside rope_parameters");
  }
  theta = ReadRopeDict("rope_parameters", theta);
  if (!has_both) theta = ReadRopeDict("rope_scaling", theta);
  if (fields_.Number("partial_rotary_factor", 1) != 1) {
    fields_.Refuse("partial_rotary_factor",
                   "must be 1: rotary positions are of whole heads");
  }
  attention.set_rope_theta(theta);
}

void Parser::ReadExperts(v1::MoeConfig& moe) {
  // Two names of one number.
  const int64_t by_first =
      fields_.Integer({"num_experts", family_.experts, 1, 4096});
  const int64_t experts =
      fields_.Integer({"num_local_experts", by_first, 1, 4096});
  if (fields_.IsGiven("num_experts") && experts != by_first &&
      fields_.AreFine({"num_experts"})) {
    fields_.Refuse("num_experts",
                   absl::StrCat("must be as num_local_experts, ", experts));
  }
  const int64_t top_k =
      fields_.Integer({"num_experts_per_tok", family_.top_k, 1, 4096});
  if (fields_.AreFine(
          {"num_experts", "num_local_experts", "num_experts_per_tok"}) &&
      top_k > experts) {
    fields_.Refuse(
        "num_experts_per_tok",
        absl::StrCat(top_k, " must be at most the ", experts, " experts"));
  }
  moe.set_num_experts(experts);
  moe.set_top_k(top_k);
  const char* ffn = IsQwen() ? "moe_intermediate_size" : "intermediate_size";
  const int64_t fallback =
      IsQwen() ? family_.expert_ffn : family_.intermediate_size;
  moe.set_expert_hidden_size(fields_.Integer({ffn, fallback, 1, 1048576}));
  if (Is(HfFamily::kQwen2Moe)) {
    moe.set_shared_expert_hidden_size(fields_.Integer(
        {"shared_expert_intermediate_size", family_.shared_ffn, 1, 1048576}));
    moe.set_shared_expert_gate(true);
  }
}

void Parser::ReadRouter(v1::MoeConfig& moe) {
  const bool renormalized =
      !IsQwen() || fields_.Boolean("norm_topk_prob", false);
  moe.set_top_k_normalization(renormalized
                                  ? v1::TOP_K_NORMALIZATION_RENORMALIZED
                                  : v1::TOP_K_NORMALIZATION_RAW);
  const double loss = fields_.Number("router_aux_loss_coef", 0.001);
  if (fields_.Boolean("output_router_logits", false) && loss != 0) {
    fields_.Refuse("output_router_logits",
                   absl::StrCat("must be false unless router_aux_loss_coef, ",
                                loss, ", is 0: it adds a loss of the router"));
  }
  if (Is(HfFamily::kMixtral) && fields_.Number("router_jitter_noise", 0) != 0) {
    fields_.Refuse("router_jitter_noise", "must be 0: no noise is added");
  }
}

std::set<int64_t> Parser::ReadMlpOnlyLayers() {
  constexpr char kName[] = "mlp_only_layers";
  std::set<int64_t> layers;
  const json* list = fields_.TakeUnlessNull(kName);
  if (list == nullptr) return layers;
  bool fine = list->is_array();
  if (fine) {
    for (const json& layer : *list) {
      if (layer.is_number_unsigned() &&
          layer.get<uint64_t>() < static_cast<uint64_t>(model_.num_layers())) {
        layers.insert(layer.get<int64_t>());
      } else {
        fine = false;
      }
    }
  }
  if (!fine) {
    fields_.Refuse(kName, absl::StrCat("must be a list of layers from 0 to ",
                                       model_.num_layers() - 1));
  }
  return layers;
}

// Which layers have no experts, and how wide they are.
void Parser::ReadDenseLayers() {
  const std::set<int64_t> mlp_only = ReadMlpOnlyLayers();
  const int64_t step = fields_.Integer({"decoder_sparse_step", 1, 1, kMaxInt});
  const int64_t ffn = fields_.Integer(
      {"intermediate_size", family_.intermediate_size, 1, 1048576});
  for (int64_t layer = 0; layer < model_.num_layers(); ++layer) {
    if (mlp_only.count(layer) != 0 || (layer + 1) % step != 0) {
      model_.add_dense_layers(layer);
    }
  }
  if (model_.dense_layers_size() == 0) return;
  model_.set_ffn_hidden_size(ffn);
  if (model_.dense_layers_size() == model_.num_layers()) {
    model_.clear_moe();
    model_.clear_dense_layers();
  }
}

void Parser::ReadMoe() {
  if (Is(HfFamily::kLlama)) {
    model_.set_ffn_hidden_size(fields_.Integer(
        {"intermediate_size", family_.intermediate_size, 1, 1048576}));
    return;
  }
  ReadExperts(*model_.mutable_moe());
  ReadRouter(*model_.mutable_moe());
  if (IsQwen()) ReadDenseLayers();
}

void Parser::CheckArchitecture() {
  fields_.Take("model_type");
  const json* architectures = fields_.TakeUnlessNull("architectures");
  if (architectures != nullptr &&
      *architectures != json::array({family_.architecture})) {
    fields_.Refuse("architectures",
                   absl::StrCat("must be [\"", family_.architecture, "\"]"));
  }
}

void Parser::CheckActivation() {
  const json* activation = fields_.Take("hidden_act");
  if (activation != nullptr && *activation != "silu") {
    fields_.Refuse("hidden_act", "must be \"silu\"");
  }
  if (Is(HfFamily::kLlama) && fields_.Boolean("mlp_bias", false)) {
    fields_.Refuse("mlp_bias", "must be false: feed-forward has no biases");
  }
}

// The library keeps look-ups from training the row of a padding token.
void Parser::CheckPadding() {
  if (fields_.TakeUnlessNull("pad_token_id") != nullptr) {
    fields_.Refuse("pad_token_id",
                   "must be null: every row of the embedding is trained");
  }
}

void Parser::CheckWindows() {
  if (IsQwen()) {
    // Where windows are not in use, their width does nothing.
    fields_.Take("sliding_window");
    if (fields_.Boolean("use_sliding_window", false)) {
      fields_.Refuse("use_sliding_window",
                     "must be false: every position attends to all before it");
    }
  } else if (Is(HfFamily::kMixtral) &&
             fields_.TakeUnlessNull("sliding_window") != nullptr) {
    fields_.Refuse("sliding_window",
                   "must be null: every position attends to all before it");
  }
  const json* types = fields_.TakeUnlessNull("layer_types");
  if (types == nullptr || !fields_.AreFine({"num_hidden_layers"})) return;
  const json full(static_cast<size_t>(model_.num_layers()), "full_attention");
  if (*types != full) {
    fields_.Refuse("layer_types",
                   absl::StrCat("must be \"full_attention\" for each of the ",
                                model_.num_layers(), " layers"));
  }
}

void Parser::CheckDropout() {
  if (fields_.Number("attention_dropout", 0, Is(HfFamily::kLlama)) != 0) {
    fields_.Refuse("attention_dropout", "must be 0: nothing is dropped");
  }
}

absl::StatusOr<HfConfig> Parser::Parse() {
  CheckArchitecture();
  ReadSizes();
  ReadAttention();
  ReadMoe();
  CheckActivation();
  CheckPadding();
  CheckWindows();
  CheckDropout();
  for (const WithoutEffect& field : kWithoutEffect) fields_.Take(field.name);
  fields_.RefuseTheRest(
      absl::StrCat("is not known for model_type \"", family_.model_type, "\""));
  RETURN_IF_ERROR(fields_.Refusals());
  HfConfig config;
  config.family = family_.family;
  config.model = model_;
  return config;
}

}  // namespace

absl::string_view Name(HfFamily family) {
  return kFamilies[static_cast<int>(family)].model_type;
}

absl::StatusOr<HfConfig> ParseHfConfig(absl::string_view json) {
  ASSIGN_OR_RETURN(const nlohmann::json object,
                   ParseJsonObject(json, kMaxHfConfigBytes));
  const auto model_type = object.find("model_type");
  std::vector<std::string> known;
  for (const Family& family : kFamilies) {
    if (model_type != object.end() && *model_type == family.model_type) {
      return Parser(family, object).Parse();
    }
    known.push_back(absl::StrCat("\"", family.model_type, "\""));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "model_type",
      model_type == object.end() ? " is absent"
                                 : absl::StrCat("=", ShortText(*model_type)),
      ": must be one of ", absl::StrJoin(known, ", ")));
}

}  // namespace weft::checkpoint
