#include "checkpoint/format/megatron_names.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"

namespace weft::checkpoint {
namespace {

// How the tensors of a parameter are cut.
enum class Cut : uint8_t {
  kWhole,     // one tensor of its shape
  kByExpert,  // one tensor for each expert; $0 stands for the expert
  kByGroup,   // one tensor, grouped by heads
};

struct Rule {
  const char* param;
  const char* tensor;
  Cut cut = Cut::kWhole;
};

constexpr Rule kOutside[] = {
    {"embedding.table", "embedding.word_embeddings.weight"},
    {"head.norm", "decoder.final_layernorm.weight"},
    {"head.output", "output_layer.weight"},
};

// Of a model that has layers of one symbol only.
constexpr Rule kUngroupedNorm = {"head.norm", "decoder.final_norm.weight"};

constexpr Rule kLayer[] = {
    {"norm1", "input_layernorm.weight"},
    {"qkv", "self_attention.linear_qkv.weight", Cut::kByGroup},
    {"qkv_bias", "self_attention.linear_qkv.bias", Cut::kByGroup},
    {"out", "self_attention.linear_proj.weight"},
    {"out_bias", "self_attention.linear_proj.bias"},
    {"q_norm", "self_attention.q_layernorm.weight"},
    {"k_norm", "self_attention.k_layernorm.weight"},
    {"q_proj", "self_attention.linear_q_proj.weight"},
    {"q_down", "self_attention.linear_q_down_proj.weight"},
    {"q_up", "self_attention.linear_q_up_proj.weight"},
    {"kv_down", "self_attention.linear_kv_down_proj.weight"},
    {"kv_norm", "self_attention.kv_layernorm.weight"},
    {"kv_up", "self_attention.linear_kv_up_proj.weight"},
    {"norm", "norm.weight"},
    {"in_proj", "mixer.in_proj.weight"},
    {"conv_weight", "mixer.conv1d_weight"},
    {"conv_bias", "mixer.conv1d_bias"},
    {"dt_bias", "mixer.dt_bias"},
    {"A_log", "mixer.A_log"},
    {"D", "mixer.D"},
    {"gated_norm", "mixer.norm.weight"},
    {"out_proj", "mixer.out_proj.weight"},
    {"norm2", "pre_mlp_layernorm.weight"},
    {"mlp.gate_up", "mlp.linear_fc1.weight"},
    {"mlp.up", "mlp.linear_fc1.weight"},
    {"mlp.down", "mlp.linear_fc2.weight"},
    {"router", "mlp.router.weight"},
    {"expert_bias", "mlp.router.expert_bias"},
    {"shared_gate_up", "mlp.shared_experts.linear_fc1.weight"},
    {"shared_up", "mlp.shared_experts.linear_fc1.weight"},
    {"shared_down", "mlp.shared_experts.linear_fc2.weight"},
    {"shared_gate", "mlp.shared_experts.gate_weight"},
    {"experts.gate_up", "mlp.experts.local_experts.$0.linear_fc1.weight",
     Cut::kByExpert},
    {"experts.up", "mlp.experts.local_experts.$0.linear_fc1.weight",
     Cut::kByExpert},
    {"experts.down", "mlp.experts.local_experts.$0.linear_fc2.weight",
     Cut::kByExpert},
};

// Around the layer of a depth of multi-token prediction.
constexpr Rule kDepth[] = {
    {"enorm", "enorm.weight"},
    {"hnorm", "hnorm.weight"},
    {"eh_proj", "eh_proj.weight"},
    {"final_norm", "final_layernorm.weight"},
};

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

// The number behind `prefix`, which is taken off `param` with it and a dot.
std::optional<int64_t> TakeNumber(absl::string_view prefix,
                                  absl::string_view& param) {
  const size_t dot = param.find('.', prefix.size());
  int64_t number = -1;
  if (!absl::StartsWith(param, prefix) || dot == absl::string_view::npos ||
      !absl::SimpleAtoi(param.substr(prefix.size(), dot - prefix.size()),
                        &number) ||
      number < 0) {
    return std::nullopt;
  }
  param.remove_prefix(dot + 1);
  return number;
}

Found FindRule(const model::Shape& shape, absl::string_view param) {
  if (param == kUngroupedNorm.param && !shape.has_groups) {
    return {&kUngroupedNorm, ""};
  }
  const std::optional<int64_t> depth = TakeNumber("mtp.", param);
  if (depth.has_value()) {
    if (*depth >= shape.mtp_depths()) return {};
    const std::string prefix = absl::StrCat("mtp.layers.", *depth, ".");
    const Rule* rule = Find(kDepth, param);
    if (rule != nullptr) return {rule, prefix};
    return {Find(kLayer, param), prefix + "mtp_model_layer."};
  }
  const std::optional<int64_t> layer = TakeNumber("layers.", param);
  if (!layer.has_value()) return {Find(kOutside, param), ""};
  if (*layer >= static_cast<int64_t>(shape.layers.size())) return {};
  return {Find(kLayer, param), absl::StrCat("decoder.layers.", *layer, ".")};
}

std::vector<TensorSlice> ByExpert(const std::string& name,
                                  const std::vector<int64_t>& shape) {
  const std::vector<int64_t> of_one(shape.begin() + 1, shape.end());
  std::vector<TensorSlice> slices;
  for (int64_t expert = 0; expert < shape[0]; ++expert) {
    slices.push_back(WholeTensor(absl::Substitute(name, expert), of_one));
  }
  return slices;
}

// Rows of the tensor: of each group its query heads, a key head, a value head.
std::vector<TensorSlice> ByGroup(const std::string& name,
                                 const std::vector<int64_t>& tensor_shape,
                                 const model::Shape& shape) {
  const TensorSlice whole = WholeTensor(name, tensor_shape);
  const int64_t head = whole.elements / tensor_shape[0] * shape.head_dim;
  const int64_t queries = shape.heads / shape.kv_heads;  // of a group
  std::vector<TensorSlice> slices;
  const auto add = [&](int64_t first_head, int64_t heads) {
    for (int64_t group = 0; group < shape.kv_heads; ++group) {
      TensorSlice slice = whole;
      slice.begin = (group * (queries + 2) + first_head) * head;
      slice.elements = heads * head;
      slices.push_back(std::move(slice));
    }
  };
  add(0, queries);
  add(queries, 1);      // keys
  add(queries + 1, 1);  // values
  return slices;
}

// Whether the parameter can be cut as its rule says.
bool IsCuttable(const Rule& rule, const std::vector<int64_t>& param_shape,
                const model::Shape& shape) {
  switch (rule.cut) {
    case Cut::kWhole:
      return !param_shape.empty();
    case Cut::kByExpert:
      return param_shape.size() == 3 && param_shape[0] == shape.experts;
    case Cut::kByGroup:
      return !param_shape.empty() && param_shape[0] == shape.qkv_columns();
  }
  return false;
}

}  // namespace

absl::StatusOr<std::vector<TensorSlice>> MegatronTensorsOf(
    const model::Shape& shape, const model::ParamDecl& param) {
  const Found found = FindRule(shape, param.name);
  if (found.rule == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter \"", param.name,
                     "\" has no name in a Megatron-Core checkpoint of ",
                     shape.layers.size(), " layers"));
  }
  const std::string name = absl::StrCat(found.prefix, found.rule->tensor);
  if (!IsCuttable(*found.rule, param.shape, shape)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter \"", param.name, "\" has shape [",
        absl::StrJoin(param.shape, ", "), "], which cannot be cut into \"",
        name, "\" of ", shape.heads, " heads in ", shape.kv_heads,
        " groups and ", shape.experts, " experts"));
  }
  switch (found.rule->cut) {
    case Cut::kByExpert:
      return ByExpert(name, param.shape);
    case Cut::kByGroup:
      return ByGroup(name, param.shape, shape);
    case Cut::kWhole:
      break;
  }
  return std::vector<TensorSlice>{WholeTensor(name, param.shape)};
}

}  // namespace weft::checkpoint
