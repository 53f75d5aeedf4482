#include "worker/service/checkpoint_testutil.h"

#include <deque>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/hash64.h"
#include "base/status_macros.h"
#include "checkpoint/format/safetensors_writer.h"
#include "schedule/plan.h"
#include "worker/exec/testing/tiny_job.h"

namespace weft::service {
namespace {

// The job's model in Mixtral's words.
constexpr char kConfig[] = R"json({
  "model_type": "mixtral",
  "vocab_size": 29,
  "hidden_size": 16,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "intermediate_size": 12,
  "num_local_experts": 4,
  "num_experts_per_tok": 2,
  "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0,
  "tie_word_embeddings": false
})json";

// A tensor that holds the next elements of a parameter.
struct Piece {
  std::string name;
  std::vector<int64_t> shape;
};

// The tensors of a layer's parameter, in the order of its elements.
std::vector<Piece> LayerPieces(const std::string& layer,
                               const std::string& name,
                               const std::vector<int64_t>& shape) {
  const std::string moe = layer + "block_sparse_moe.";
  const std::string attention = layer + "self_attn.";
  if (name == "norm1") return {{layer + "input_layernorm.weight", shape}};
  if (name == "norm2") {
    return {{layer + "post_attention_layernorm.weight", shape}};
  }
  if (name == "qkv") {  // heads of 4: four of queries, two of keys and values
    return {{attention + "q_proj.weight", {16, 16}},
            {attention + "k_proj.weight", {8, 16}},
            {attention + "v_proj.weight", {8, 16}}};
  }
  if (name == "out") return {{attention + "o_proj.weight", shape}};
  if (name == "router") return {{moe + "gate.weight", shape}};
  std::vector<Piece> pieces;
  for (int64_t expert = 0; expert < shape[0]; ++expert) {
    const std::string prefix = absl::StrCat(moe, "experts.", expert, ".");
    if (name == "experts.down") {
      pieces.push_back({prefix + "w2.weight", {shape[1], shape[2]}});
    } else {
      pieces.push_back({prefix + "w1.weight", {shape[1] / 2, shape[2]}});
      pieces.push_back({prefix + "w3.weight", {shape[1] / 2, shape[2]}});
    }
  }
  return pieces;
}

std::vector<Piece> PiecesOf(const model::ParamDecl& param) {
  if (param.name == "embedding.table") {
    return {{"model.embed_tokens.weight", param.shape}};
  }
  if (param.name == "head.norm") return {{"model.norm.weight", param.shape}};
  if (param.name == "head.output") return {{"lm_head.weight", param.shape}};
  const std::vector<std::string> parts =
      absl::StrSplit(param.name, absl::MaxSplits('.', 2));
  return LayerPieces(absl::StrCat("model.layers.", parts[1], "."), parts[2],
                     param.shape);
}

}  // namespace

v1::TrainingJob MixtralJob() {
  exec::testing::TinyJob tiny;
  tiny.shared_expert = false;
  tiny.dense_layers = 0;
  tiny.layers = 2;
  return exec::testing::MakeJob(tiny);
}

float MixtralValue(absl::string_view param, int64_t element) {
  const uint64_t hash = Hash64().AddString(param).AddInt(element).Get();
  return static_cast<float>(hash % 256) / 512 - 0.25f;
}

absl::Status WriteMixtral(const std::string& folder) {
  std::ofstream(absl::StrCat(folder, "/config.json")) << kConfig;
  checkpoint::SafetensorsWriter writer;
  std::deque<std::vector<float>> values;  // the writer borrows them
  for (const model::ParamDecl& param :
       schedule::Declare(MixtralJob()).model.params) {
    int64_t at = 0;
    for (const Piece& piece : PiecesOf(param)) {
      int64_t elements = 1;
      for (int64_t size : piece.shape) elements *= size;
      std::vector<float>& tensor = values.emplace_back();
      for (int64_t i = 0; i < elements; ++i) {
        tensor.push_back(MixtralValue(param.name, at + i));
      }
      RETURN_IF_ERROR(
          writer.Add(piece.name, DType::kF32, piece.shape, tensor.data()));
      at += elements;
    }
  }
  return writer.Write(absl::StrCat(folder, "/model.safetensors"));
}

}  // namespace weft::service
