#include "checkpoint/format/hugging_face_names.h"

#include <iterator>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/strings/substitute.h"
#include "absl/types/span.h"
#include "checkpoint/format/hugging_face_tables.h"

namespace weft::checkpoint {
namespace {

using hugging_face::Dim;
using hugging_face::Layout;
using hugging_face::Piece;
using hugging_face::Rule;
using hugging_face::Table;

// Sizes that are the same whatever the mixer.
int64_t SizeOfFeedForward(Dim dim, const v1::ModelConfig& config) {
  const v1::MoeConfig& moe = config.moe();
  switch (dim) {
    case Dim::kFfn:
      return config.ffn_hidden_size();
    case Dim::kGatedFfn:
      return int64_t{2} * config.ffn_hidden_size();
    case Dim::kExpertFfn:
      return moe.expert_hidden_size();
    case Dim::kGatedExpertFfn:
      return int64_t{2} * moe.expert_hidden_size();
    case Dim::kSharedFfn:
      return moe.shared_expert_hidden_size();
    case Dim::kGatedSharedFfn:
      return int64_t{2} * moe.shared_expert_hidden_size();
    case Dim::kExperts:
      return moe.num_experts();
    default:
      return 0;
  }
}

int64_t SizeOfMixer(Dim dim, const v1::ModelConfig& config) {
  const v1::AttentionConfig& attention = config.attention();
  const v1::MlaConfig& mla = config.mla();
  const v1::MambaConfig& mamba = config.mamba();
  const int64_t heads = attention.num_heads();
  const int64_t nope = mla.qk_nope_head_dim();
  const int64_t inner = int64_t{mamba.num_heads()} * mamba.head_dim();
  const int64_t channels =
      inner + int64_t{2} * mamba.num_groups() * mamba.state_size();
  switch (dim) {
    case Dim::kQuery:
      return heads * attention.head_dim();
    case Dim::kKeyValue:
      return int64_t{attention.num_kv_heads()} * attention.head_dim();
    case Dim::kHead:
      return attention.head_dim();
    case Dim::kLatentQuery:
      return mla.q_lora_rank();
    case Dim::kLatent:
      return mla.kv_lora_rank();
    case Dim::kLatentAndRotated:
      return mla.kv_lora_rank() + mla.qk_rope_head_dim();
    case Dim::kMlaQuery:
      return heads * (nope + mla.qk_rope_head_dim());
    case Dim::kMlaKeyValue:
      return heads * (nope + mla.v_head_dim());
    case Dim::kMlaValue:
      return heads * mla.v_head_dim();
    case Dim::kMambaHeads:
      return mamba.num_heads();
    case Dim::kMambaInner:
      return inner;
    case Dim::kMambaChannels:
      return channels;
    case Dim::kMambaProjection:
      return inner + channels + mamba.num_heads();
    case Dim::kConvWidth:
      return mamba.conv_width();
    default:
      return 0;
  }
}

int64_t Size(Dim dim, const v1::ModelConfig& config) {
  switch (dim) {
    case Dim::kNone:
      return 0;
    case Dim::kOne:
      return 1;
    case Dim::kVocab:
      return config.vocab_size();
    case Dim::kHidden:
      return config.hidden_size();
    default:
      break;
  }
  return SizeOfFeedForward(dim, config) + SizeOfMixer(dim, config);
}

// Decoder layers; a group of the pattern is one.
int LayersOf(const v1::ModelConfig& config) {
  if (config.pattern().empty()) return config.num_layers();
  int layers = 0;
  bool is_inside = false;
  for (char c : config.pattern()) {
    if (c == '[') is_inside = true;
    if (c == ']') is_inside = false;
    if (!is_inside) ++layers;  // a symbol by itself, or the end of a group
  }
  return layers;
}

const Rule* Find(absl::Span<const Table> tables, absl::string_view param) {
  for (const Table& table : tables) {
    for (const Rule& rule : table) {
      if (param == rule.param) return &rule;
    }
  }
  return nullptr;
}

// The rule of a parameter, and what goes before its tensors' names.
struct Found {
  const Rule* rule = nullptr;  // null when there is none
  std::string prefix;
};

Found FindRule(const Layout& layout, const v1::ModelConfig& config,
               absl::string_view param) {
  if (!absl::ConsumePrefix(&param, "layers.")) {
    return {Find({layout.outside}, param), ""};
  }
  const size_t dot = param.find('.');
  int layer = -1;
  if (dot == absl::string_view::npos ||
      !absl::SimpleAtoi(param.substr(0, dot), &layer) || layer < 0 ||
      layer >= LayersOf(config)) {
    return {};
  }
  return {Find(layout.layer, param.substr(dot + 1)),
          absl::StrCat(layout.layers, layer, ".")};
}

std::vector<int64_t> ShapeOf(const Piece& piece,
                             const v1::ModelConfig& config) {
  std::vector<int64_t> shape;
  for (Dim dim : piece.dims) {
    if (dim != Dim::kNone) shape.push_back(Size(dim, config));
  }
  return shape;
}

// The shape of the parameter that `rule` is for: pieces one below another.
std::vector<int64_t> ShapeOf(const Rule& rule, const v1::ModelConfig& config) {
  std::vector<int64_t> shape = ShapeOf(rule.pieces[0], config);
  for (size_t i = 1; i < std::size(rule.pieces); ++i) {
    shape[0] += Size(rule.pieces[i].dims[0], config);
  }
  if (rule.by_expert) {
    shape.insert(shape.begin(), Size(Dim::kExperts, config));
  }
  return shape;
}

}  // namespace

absl::StatusOr<std::vector<TensorSlice>> HfTensorsOf(
    HfFamily family, const v1::ModelConfig& config,
    const model::ParamDecl& param) {
  const Layout& layout = hugging_face::LayoutOf(family);
  const Found found = FindRule(layout, config, param.name);
  if (found.rule == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter \"", param.name, "\" has no name in a ", Name(family),
        " checkpoint of ", LayersOf(config), " layers"));
  }
  const Rule& rule = *found.rule;
  const std::vector<int64_t> shape = ShapeOf(rule, config);
  if (param.shape != shape) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter \"", param.name, "\" has shape [",
        absl::StrJoin(param.shape, ", "), "]; config.json makes it [",
        absl::StrJoin(shape, ", "), "], beginning with \"", found.prefix,
        absl::Substitute(rule.pieces[0].name, 0, layout.mixer), "\""));
  }
  const int64_t repeats = rule.by_expert ? shape[0] : 1;
  std::vector<TensorSlice> tensors;
  for (int64_t expert = 0; expert < repeats; ++expert) {
    for (const Piece& piece : rule.pieces) {
      if (piece.name == nullptr) continue;
      tensors.push_back(WholeTensor(
          absl::StrCat(found.prefix,
                       absl::Substitute(piece.name, expert, layout.mixer)),
          ShapeOf(piece, config)));
    }
  }
  return tensors;
}

}  // namespace weft::checkpoint
