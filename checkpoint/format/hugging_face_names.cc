#include "checkpoint/format/hugging_face_names.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/strings/substitute.h"
#include "base/status_macros.h"

namespace weft::checkpoint {
namespace {

// Sizes that tensors have.
enum class Dim : uint8_t {
  kNone,  // the tensor has no such dimension
  kOne,
  kVocab,
  kHidden,
  kQuery,      // of all query heads
  kKeyValue,   // of all key, or value, heads
  kHead,       // of one head
  kFfn,        // intermediate, of a dense layer
  kExpertFfn,  // intermediate, of an expert
  kSharedFfn,  // intermediate, of the shared expert
  kExperts,
};

// A tensor; $0 in its name stands for the expert.
struct Piece {
  const char* name = nullptr;
  Dim rows = Dim::kNone;
  Dim columns = Dim::kNone;
};

// The tensors of a parameter: `pieces`, or `pieces` of each expert.
struct Rule {
  const char* param;
  bool by_expert;
  Piece pieces[3];
};

constexpr Rule kOutside[] = {
    {"embedding.table",
     false,
     {{"model.embed_tokens.weight", Dim::kVocab, Dim::kHidden}}},
    {"head.norm", false, {{"model.norm.weight", Dim::kHidden}}},
    {"head.output", false, {{"lm_head.weight", Dim::kVocab, Dim::kHidden}}},
};

// Inside a layer, in every family.
constexpr Rule kLayer[] = {
    {"norm1", false, {{"input_layernorm.weight", Dim::kHidden}}},
    {"qkv",
     false,
     {{"self_attn.q_proj.weight", Dim::kQuery, Dim::kHidden},
      {"self_attn.k_proj.weight", Dim::kKeyValue, Dim::kHidden},
      {"self_attn.v_proj.weight", Dim::kKeyValue, Dim::kHidden}}},
    {"qkv_bias",
     false,
     {{"self_attn.q_proj.bias", Dim::kQuery},
      {"self_attn.k_proj.bias", Dim::kKeyValue},
      {"self_attn.v_proj.bias", Dim::kKeyValue}}},
    {"out", false, {{"self_attn.o_proj.weight", Dim::kHidden, Dim::kQuery}}},
    {"out_bias", false, {{"self_attn.o_proj.bias", Dim::kHidden}}},
    {"q_norm", false, {{"self_attn.q_norm.weight", Dim::kHead}}},
    {"k_norm", false, {{"self_attn.k_norm.weight", Dim::kHead}}},
    {"norm2", false, {{"post_attention_layernorm.weight", Dim::kHidden}}},
    {"mlp.gate_up",
     false,
     {{"mlp.gate_proj.weight", Dim::kFfn, Dim::kHidden},
      {"mlp.up_proj.weight", Dim::kFfn, Dim::kHidden}}},
    {"mlp.down", false, {{"mlp.down_proj.weight", Dim::kHidden, Dim::kFfn}}},
    {"shared_gate_up",
     false,
     {{"mlp.shared_expert.gate_proj.weight", Dim::kSharedFfn, Dim::kHidden},
      {"mlp.shared_expert.up_proj.weight", Dim::kSharedFfn, Dim::kHidden}}},
    {"shared_down",
     false,
     {{"mlp.shared_expert.down_proj.weight", Dim::kHidden, Dim::kSharedFfn}}},
    {"shared_gate",
     false,
     {{"mlp.shared_expert_gate.weight", Dim::kOne, Dim::kHidden}}},
};

// The router and the experts of a layer, whose names differ.
constexpr Rule kExperts[] = {
    {"router", false, {{"mlp.gate.weight", Dim::kExperts, Dim::kHidden}}},
    {"experts.gate_up",
     true,
     {{"mlp.experts.$0.gate_proj.weight", Dim::kExpertFfn, Dim::kHidden},
      {"mlp.experts.$0.up_proj.weight", Dim::kExpertFfn, Dim::kHidden}}},
    {"experts.down",
     true,
     {{"mlp.experts.$0.down_proj.weight", Dim::kHidden, Dim::kExpertFfn}}},
};

constexpr Rule kMixtralExperts[] = {
    {"router",
     false,
     {{"block_sparse_moe.gate.weight", Dim::kExperts, Dim::kHidden}}},
    {"experts.gate_up",
     true,
     {{"block_sparse_moe.experts.$0.w1.weight", Dim::kExpertFfn, Dim::kHidden},
      {"block_sparse_moe.experts.$0.w3.weight", Dim::kExpertFfn,
       Dim::kHidden}}},
    {"experts.down",
     true,
     {{"block_sparse_moe.experts.$0.w2.weight", Dim::kHidden,
       Dim::kExpertFfn}}},
};

int64_t Size(Dim dim, const v1::ModelConfig& config) {
  const v1::AttentionConfig& attention = config.attention();
  const int64_t head = attention.head_dim();
  switch (dim) {
    case Dim::kNone:
      return 0;
    case Dim::kOne:
      return 1;
    case Dim::kVocab:
      return config.vocab_size();
    case Dim::kHidden:
      return config.hidden_size();
    case Dim::kQuery:
      return attention.num_heads() * head;
    case Dim::kKeyValue:
      return attention.num_kv_heads() * head;
    case Dim::kHead:
      return head;
    case Dim::kFfn:
      return config.ffn_hidden_size();
    case Dim::kExpertFfn:
      return config.moe().expert_hidden_size();
    case Dim::kSharedFfn:
      return config.moe().shared_expert_hidden_size();
    case Dim::kExperts:
      return config.moe().num_experts();
  }
  return 0;
}

template <size_t n>
const Rule* Find(const Rule (&rules)[n], absl::string_view param) {
  for (const Rule& rule : rules) {
    if (param == rule.param) return &rule;
  }
  return nullptr;
}

// The rule of a parameter, and what goes before its tensors' names.
struct Found {
  const Rule* rule = nullptr;  // null when there is none
  std::string prefix;
};

Found FindRule(HfFamily family, const v1::ModelConfig& config,
               absl::string_view param) {
  if (!absl::ConsumePrefix(&param, "layers.")) {
    return {Find(kOutside, param), ""};
  }
  const size_t dot = param.find('.');
  int layer = -1;
  if (dot == absl::string_view::npos ||
      !absl::SimpleAtoi(param.substr(0, dot), &layer) || layer < 0 ||
      layer >= config.num_layers()) {
    return {};
  }
  const absl::string_view inside = param.substr(dot + 1);
  const Rule* rule = Find(kLayer, inside);
  if (rule == nullptr) {
    rule = family == HfFamily::kMixtral ? Find(kMixtralExperts, inside)
                                        : Find(kExperts, inside);
  }
  return {rule, absl::StrCat("model.layers.", layer, ".")};
}

// The shape of the parameter that `rule` is for.
std::vector<int64_t> ShapeOf(const Rule& rule, const v1::ModelConfig& config) {
  std::vector<int64_t> shape;
  if (rule.by_expert) shape.push_back(Size(Dim::kExperts, config));
  int64_t rows = 0;
  for (const Piece& piece : rule.pieces) rows += Size(piece.rows, config);
  shape.push_back(rows);
  const Dim columns = rule.pieces[0].columns;
  if (columns != Dim::kNone) shape.push_back(Size(columns, config));
  return shape;
}

}  // namespace

absl::StatusOr<std::vector<TensorSlice>> HfTensorsOf(
    HfFamily family, const v1::ModelConfig& config,
    const model::ParamDecl& param) {
  const Found found = FindRule(family, config, param.name);
  if (found.rule == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter \"", param.name, "\" has no name in a ", Name(family),
        " checkpoint of ", config.num_layers(), " layers"));
  }
  const Rule& rule = *found.rule;
  const std::vector<int64_t> shape = ShapeOf(rule, config);
  if (param.shape != shape) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter \"", param.name, "\" has shape [",
        absl::StrJoin(param.shape, ", "), "]; config.json makes it [",
        absl::StrJoin(shape, ", "), "], beginning with \"", found.prefix,
        absl::Substitute(rule.pieces[0].name, 0), "\""));
  }
  const int64_t repeats = rule.by_expert ? shape[0] : 1;
  std::vector<TensorSlice> tensors;
  for (int64_t expert = 0; expert < repeats; ++expert) {
    for (const Piece& piece : rule.pieces) {
      if (piece.name == nullptr) continue;
      std::vector<int64_t> tensor_shape = {Size(piece.rows, config)};
      if (piece.columns != Dim::kNone) {
        tensor_shape.push_back(Size(piece.columns, config));
      }
      tensors.push_back(WholeTensor(
          absl::StrCat(found.prefix, absl::Substitute(piece.name, expert)),
          std::move(tensor_shape)));
    }
  }
  return tensors;
}

}  // namespace weft::checkpoint
