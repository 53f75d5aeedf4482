// Readers of Llama, Mixtral, Qwen2-MoE and Qwen3-MoE.
#include <cstdint>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "checkpoint/format/hugging_face_reader.h"

namespace weft::checkpoint {
namespace {

using nlohmann::json;

constexpr int64_t kMaxInt = INT32_MAX;
constexpr int64_t kMaxFfn = 1048576;

// What fields of the two Qwen families are where they are absent.
struct Qwen {
  int64_t heads;
  int64_t kv_heads;
  int64_t ffn;
  int64_t experts;
  int64_t top_k;
  int64_t expert_ffn;
  int64_t shared_ffn;  // 0: the family has no shared expert
};

void ReadExperts(int64_t experts, int64_t top_k, HfReader& reader) {
  v1::MoeConfig& moe = *reader.model.mutable_moe();
  moe.set_num_experts(
      ReadTwoNames("num_experts", "num_local_experts", experts, reader));
  moe.set_top_k(ReadTopK(top_k, moe.num_experts(),
                         {"num_experts", "num_local_experts"}, reader));
}

void SetBiases(bool has_biases, v1::AttentionConfig& attention) {
  attention.set_qkv_bias(has_biases);
  attention.set_output_bias(has_biases);
}

std::set<int64_t> ReadMlpOnlyLayers(HfReader& reader) {
  constexpr char kName[] = "mlp_only_layers";
  const int64_t count = reader.model.num_layers();
  std::set<int64_t> layers;
  const json* list = reader.fields.TakeUnlessNull(kName);
  if (list == nullptr) return layers;
  bool fine = list->is_array();
  if (fine) {
    for (const json& layer : *list) {
      if (layer.is_number_unsigned() &&
          layer.get<uint64_t>() < static_cast<uint64_t>(count)) {
        layers.insert(layer.get<int64_t>());
      } else {
        fine = false;
      }
    }
  }
  if (!fine) {
    reader.fields.Refuse(kName, absl::StrCat("must be a list of layers from ",
                                             "0 to ", count - 1));
  }
  return layers;
}

// Which layers have no experts, and how wide they are.
void ReadDenseLayers(int64_t absent_ffn, HfReader& reader) {
  v1::ModelConfig& model = reader.model;
  FieldReader& fields = reader.fields;
  const std::set<int64_t> mlp_only = ReadMlpOnlyLayers(reader);
  const int64_t step = fields.Integer({"decoder_sparse_step", 1, 1, kMaxInt});
  const int64_t ffn =
      fields.Integer({"intermediate_size", absent_ffn, 1, kMaxFfn});
  for (int64_t layer = 0; layer < model.num_layers(); ++layer) {
    if (mlp_only.count(layer) != 0 || (layer + 1) % step != 0) {
      model.add_dense_layers(layer);
    }
  }
  if (model.dense_layers_size() == 0) return;
  model.set_ffn_hidden_size(ffn);
  if (model.dense_layers_size() == model.num_layers()) {
    model.clear_moe();
    model.clear_dense_layers();
  }
}

void CheckFullAttention(HfReader& reader) {
  constexpr char kName[] = "layer_types";
  const json* types = reader.fields.TakeUnlessNull(kName);
  if (types == nullptr || !reader.fields.AreFine({"num_hidden_layers"})) return;
  const int64_t count = reader.model.num_layers();
  if (*types == json(static_cast<size_t>(count), "full_attention")) return;
  reader.fields.Refuse(
      kName, absl::StrCat("must be \"full_attention\" for each of ", "the ",
                          count, " layers"));
}

constexpr char kNoWindows[] = "every position attends to all before it";

void ReadQwen(const Qwen& absent, HfReader& reader) {
  FieldReader& fields = reader.fields;
  ReadWidths({151936, 2048, "rms_norm_eps", 1e-6}, reader);
  ReadNumLayers(24, reader);
  ReadHeads({absent.heads, absent.kv_heads, /*kv_nullable=*/false}, reader);
  ReadRope({/*theta=*/1e4}, reader);
  ReadExperts(absent.experts, absent.top_k, reader);
  v1::MoeConfig& moe = *reader.model.mutable_moe();
  moe.set_expert_hidden_size(
      fields.Integer({"moe_intermediate_size", absent.expert_ffn, 1, kMaxFfn}));
  moe.set_top_k_normalization(fields.Boolean("norm_topk_prob", false)
                                  ? v1::TOP_K_NORMALIZATION_RENORMALIZED
                                  : v1::TOP_K_NORMALIZATION_RAW);
  CheckRouterLoss(reader);
  CheckSilu("hidden_act", reader);
  ReadPaddingToken(/*absent=*/std::nullopt, reader);
  // Where windows are not in use, their width does nothing.
  TakeAll({"sliding_window"}, reader);
  MustBe("use_sliding_window", false, kNoWindows, reader);
  CheckFullAttention(reader);
  CheckDropout("attention_dropout", /*nullable=*/false, reader);
  if (absent.shared_ffn != 0) {
    moe.set_shared_expert_hidden_size(fields.Integer(
        {"shared_expert_intermediate_size", absent.shared_ffn, 1, kMaxFfn}));
    moe.set_shared_expert_gate(true);
  }
  ReadDenseLayers(absent.ffn, reader);
}

}  // namespace

void ReadHfLlama(HfReader& reader) {
  FieldReader& fields = reader.fields;
  ReadWidths({32000, 4096, "rms_norm_eps", 1e-6}, reader);
  ReadNumLayers(32, reader);
  ReadHeads({32, /*kv_heads=*/0, /*kv_nullable=*/true}, reader);
  ReadRope({/*theta=*/1e4}, reader);
  SetBiases(fields.Boolean("attention_bias", false),
            *reader.model.mutable_attention());
  reader.model.set_ffn_hidden_size(
      fields.Integer({"intermediate_size", 11008, 1, kMaxFfn}));
  CheckSilu("hidden_act", reader);
  MustBe("mlp_bias", false, "feed-forward has no biases", reader);
  ReadPaddingToken(/*absent=*/std::nullopt, reader);
  CheckFullAttention(reader);
  CheckDropout("attention_dropout", /*nullable=*/true, reader);
}

void ReadHfMixtral(HfReader& reader) {
  FieldReader& fields = reader.fields;
  ReadWidths({32000, 4096, "rms_norm_eps", 1e-5}, reader);
  ReadNumLayers(32, reader);
  ReadHeads({32, 8, /*kv_nullable=*/true}, reader);
  ReadRope({/*theta=*/1e6}, reader);
  ReadExperts(8, 2, reader);
  v1::MoeConfig& moe = *reader.model.mutable_moe();
  moe.set_expert_hidden_size(
      fields.Integer({"intermediate_size", 14336, 1, kMaxFfn}));
  moe.set_top_k_normalization(v1::TOP_K_NORMALIZATION_RENORMALIZED);
  CheckRouterLoss(reader);
  if (fields.Number("router_jitter_noise", 0) != 0) {
    fields.Refuse("router_jitter_noise", "must be 0: no noise is added");
  }
  CheckSilu("hidden_act", reader);
  ReadPaddingToken(/*absent=*/std::nullopt, reader);
  MustBeNull("sliding_window", kNoWindows, reader);
  CheckFullAttention(reader);
  CheckDropout("attention_dropout", /*nullable=*/false, reader);
}

void ReadHfQwen2Moe(HfReader& reader) {
  ReadQwen({16, 16, 5632, 60, 4, 1408, 5632}, reader);
  reader.model.mutable_attention()->set_qkv_bias(
      reader.fields.Boolean("qkv_bias", true));
}

void ReadHfQwen3Moe(HfReader& reader) {
  ReadQwen({32, 4, 6144, 128, 8, 768, 0}, reader);
  v1::AttentionConfig& attention = *reader.model.mutable_attention();
  attention.set_qk_norm(true);
  SetBiases(reader.fields.Boolean("attention_bias", false), attention);
}

}  // namespace weft::checkpoint
