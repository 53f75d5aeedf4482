#include "worker/service/initial_checkpoint.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/megatron.h"
#include "model/pattern.h"
#include "model/shape.h"

namespace weft::service {
namespace {

using model::Shape;

// Two numbers have the same text only when they are the same.
std::string Text(double value) {
  std::string text = absl::StrFormat("%.6g", value);
  double back = 0;
  if (absl::SimpleAtod(text, &back) && back == value) return text;
  return absl::StrFormat("%.17g", value);
}
std::string Text(size_t value) { return absl::StrCat(value); }
std::string Text(int64_t value) { return absl::StrCat(value); }
std::string Text(bool value) { return value ? "true" : "false"; }

std::vector<int> DenseLayers(const Shape& shape) {
  std::vector<int> dense;
  for (size_t layer = 0; layer < shape.layers.size(); ++layer) {
    if (!Has(shape.layers[layer], model::BlockKind::kExperts)) {
      dense.push_back(static_cast<int>(layer));
    }
  }
  return dense;
}

std::string DenseLayersText(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(DenseLayers(shape), ", "), "]");
}

// What no layer has is not compared.
std::string DenseWidthText(const Shape& shape) {
  return Text(DenseLayers(shape).empty() ? 0 : shape.ffn);
}

std::string DenseDepthsText(const Shape& shape) {
  const bool dense = shape.mtp_depths() > 0 && shape.experts > 0 &&
                     !Has(shape.mtp_layers[0], model::BlockKind::kExperts);
  return Text(dense);
}

std::string NormalizationText(const Shape& shape) {
  return shape.renormalize_top_k ? "renormalized" : "raw";
}

std::string ActivationText(const Shape& shape) {
  return Name(shape.activation);
}

std::string ScoreText(const Shape& shape) {
  return shape.sigmoid_scores ? "sigmoid" : "softmax";
}

std::string GroupsText(const Shape& shape) {
  const model::ExpertGroups& groups = shape.expert_groups;
  return absl::StrCat(groups.groups, ", ", groups.kept, " kept, ",
                      groups.scores, " scores");
}

// The scale that follows from the width of a head is not told apart from the
// same one given.
std::string SoftmaxScaleText(const Shape& shape) {
  Shape by_default = shape;
  by_default.softmax_scale = 0;
  const bool latent = shape.has(model::BlockKind::kMla);
  const double scale = latent ? shape.mla_scale() : shape.attention_scale();
  const double other =
      latent ? by_default.mla_scale() : by_default.attention_scale();
  return scale == other ? "default" : Text(scale);
}

// A factor of 1 is none.
std::string YarnText(const Shape& shape) {
  const model::YarnShape& yarn = shape.mla.yarn;
  if (yarn.factor == 1) return "none";
  return absl::StrCat("[", Text(yarn.factor), ", ",
                      Text(yarn.original_positions), ", ", Text(yarn.beta_fast),
                      ", ", Text(yarn.beta_slow), ", ", Text(yarn.mscale), ", ",
                      Text(yarn.mscale_all_dim), "]");
}

std::string PaddingTokenText(const Shape& shape) {
  return shape.padding_token < 0 ? "none" : Text(shape.padding_token);
}

// What makes a model another one, as its fields are called.
struct Field {
  const char* name;
  std::string (*text)(const Shape& shape);
};

constexpr Field kFields[] = {
    {"vocab_size", [](const Shape& s) { return Text(s.vocab); }},
    {"hidden_size", [](const Shape& s) { return Text(s.hidden); }},
    {"num_layers", [](const Shape& s) { return Text(s.layers.size()); }},
    {"attention.num_heads", [](const Shape& s) { return Text(s.heads); }},
    {"attention.num_kv_heads", [](const Shape& s) { return Text(s.kv_heads); }},
    {"attention.head_dim", [](const Shape& s) { return Text(s.head_dim); }},
    {"attention.rope_theta", [](const Shape& s) { return Text(s.rope_theta); }},
    {"attention.qkv_bias", [](const Shape& s) { return Text(s.qkv_bias); }},
    {"attention.output_bias", [](const Shape& s) { return Text(s.out_bias); }},
    {"attention.qk_norm", [](const Shape& s) { return Text(s.qk_norm); }},
    {"mamba.num_heads", [](const Shape& s) { return Text(s.mamba.heads); }},
    {"mamba.head_dim", [](const Shape& s) { return Text(s.mamba.head_dim); }},
    {"mamba.num_groups", [](const Shape& s) { return Text(s.mamba.groups); }},
    {"mamba.state_size",
     [](const Shape& s) { return Text(s.mamba.state_size); }},
    {"mamba.conv_width",
     [](const Shape& s) { return Text(s.mamba.conv_width); }},
    {"mamba.no_conv_bias",
     [](const Shape& s) { return Text(!s.mamba.conv_bias); }},
    {"mamba.projection_bias",
     [](const Shape& s) { return Text(s.mamba.projection_bias); }},
    {"mamba.norm_over_all_groups",
     [](const Shape& s) {
       return Text(s.mamba.norm_groups() != s.mamba.groups);
     }},
    {"mamba.time_step_min",
     [](const Shape& s) { return Text(s.mamba.dt_min); }},
    {"mamba.time_step_max",
     [](const Shape& s) { return Text(s.mamba.dt_max); }},
    {"attention.no_rope", [](const Shape& s) { return Text(!s.rope); }},
    {"attention.rotary_fraction",
     [](const Shape& s) { return Text(s.rotary_fraction); }},
    {"attention.softmax_scale", &SoftmaxScaleText},
    {"mla.q_lora_rank", [](const Shape& s) { return Text(s.mla.q_rank); }},
    {"mla.kv_lora_rank", [](const Shape& s) { return Text(s.mla.kv_rank); }},
    {"mla.qk_nope_head_dim",
     [](const Shape& s) { return Text(s.mla.plain_dim); }},
    {"mla.qk_rope_head_dim",
     [](const Shape& s) { return Text(s.mla.rope_dim); }},
    {"mla.v_head_dim", [](const Shape& s) { return Text(s.mla.v_dim); }},
    {"mla.rope_half_split",
     [](const Shape& s) { return Text(s.mla.half_split); }},
    {"mla.yarn", &YarnText},
    {"mtp.depth", [](const Shape& s) { return Text(s.mtp_layers.size()); }},
    {"mtp.dense", &DenseDepthsText},
    {"embedding_multiplier",
     [](const Shape& s) { return Text(s.embedding_multiplier); }},
    {"residual_multiplier",
     [](const Shape& s) { return Text(s.residual_multiplier); }},
    {"logits_divisor", [](const Shape& s) { return Text(s.logits_divisor); }},
    {"mlp_activation", &ActivationText},
    {"ffn_hidden_size", &DenseWidthText},
    {"moe.num_experts", [](const Shape& s) { return Text(s.experts); }},
    {"moe.top_k", [](const Shape& s) { return Text(s.top_k); }},
    {"moe.expert_hidden_size",
     [](const Shape& s) { return Text(s.expert_ffn); }},
    {"moe.shared_expert_hidden_size",
     [](const Shape& s) { return Text(s.shared_ffn); }},
    {"moe.top_k_normalization", &NormalizationText},
    {"moe.score_function", &ScoreText},
    {"moe.scaling_factor",
     [](const Shape& s) { return Text(s.routing_scale); }},
    {"moe.expert_groups", &GroupsText},
    {"moe.expert_bias", [](const Shape& s) { return Text(s.expert_bias); }},
    {"moe.shared_expert_gate",
     [](const Shape& s) { return Text(s.shared_gate); }},
    {"dense_layers", &DenseLayersText},
    {"tie_embeddings", [](const Shape& s) { return Text(s.tie_embeddings); }},
    {"padding_token", &PaddingTokenText},
    {"norm_epsilon", [](const Shape& s) { return Text(s.norm_epsilon); }},
};

// Where layers are of other kinds, sizes say nothing: only the pattern is told.
absl::Status CheckSamePattern(const v1::ModelConfig& ours,
                              const v1::ModelConfig& theirs) {
  if (ours.pattern().empty() && theirs.pattern().empty() &&
      ours.has_mla() == theirs.has_mla()) {
    return absl::OkStatus();  // fields of the layers tell more
  }
  const std::string our_pattern = PatternText(model::PatternOf(ours));
  const std::string their_pattern = PatternText(model::PatternOf(theirs));
  if (our_pattern == their_pattern) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the checkpoint is of another model: model.pattern=", our_pattern,
      ", the checkpoint has ", their_pattern));
}

std::string CapacityText(const v1::ModelConfig& model) {
  const v1::CapacityConfig& capacity = model.moe().capacity();
  if (capacity.factor() == 0) return "none";
  return absl::StrCat("[", Text(capacity.factor()),
                      capacity.pad() ? ", padded]" : "]");
}

// Configurations of Hugging Face know no capacity.
absl::Status CheckSameCapacity(const v1::ModelConfig& ours,
                               const v1::ModelConfig& theirs) {
  const std::string our_text = CapacityText(ours);
  const std::string their_text = CapacityText(theirs);
  if (our_text == their_text) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the checkpoint is of another model: model.moe.capacity=", our_text,
      ", the checkpoint has ", their_text));
}

// A checkpoint as the engine sees it.
template <typename Checkpoint>
class CheckpointWeights : public exec::InitialWeights {
 public:
  explicit CheckpointWeights(std::unique_ptr<Checkpoint> checkpoint)
      : checkpoint_(std::move(checkpoint)) {}

  absl::Status Read(const model::ParamDecl& param, int64_t begin,
                    absl::Span<float> out) const override {
    return checkpoint_->Read(param, begin, out);
  }

 private:
  const std::unique_ptr<Checkpoint> checkpoint_;
};

using OpenedWeights = absl::StatusOr<std::unique_ptr<exec::InitialWeights>>;

OpenedWeights OpenHuggingFace(const v1::TrainingJob& job,
                              const model::ModelDecl& declared) {
  using Checkpoint = checkpoint::HuggingFaceCheckpoint;
  ASSIGN_OR_RETURN(auto checkpoint,
                   Checkpoint::Open(job.init().hugging_face()));
  RETURN_IF_ERROR(CheckSameModel(job, checkpoint->model()));
  RETURN_IF_ERROR(checkpoint->Check(declared));
  return std::make_unique<CheckpointWeights<Checkpoint>>(std::move(checkpoint));
}

OpenedWeights OpenMegatron(const v1::TrainingJob& job,
                           const model::ModelDecl& declared) {
  ASSIGN_OR_RETURN(const auto described,
                   checkpoint::ReadMegatronModel(job.init().megatron()));
  if (described.has_value()) {
    RETURN_IF_ERROR(CheckSameModel(job, *described));
    RETURN_IF_ERROR(CheckSameCapacity(job.model(), *described));
  }
  ASSIGN_OR_RETURN(auto checkpoint,
                   checkpoint::OpenMegatronCheckpoint(job.init().megatron(),
                                                      model::ShapeOf(job)));
  RETURN_IF_ERROR(checkpoint->Check(declared));
  return std::make_unique<CheckpointWeights<checkpoint::CheckpointTensors>>(
      std::move(checkpoint));
}

}  // namespace

absl::Status CheckSameModel(const v1::TrainingJob& job,
                            const v1::ModelConfig& checkpoint) {
  RETURN_IF_ERROR(CheckSamePattern(job.model(), checkpoint));
  v1::TrainingJob other = job;
  *other.mutable_model() = checkpoint;
  const Shape ours = model::ShapeOf(job);
  const Shape theirs = model::ShapeOf(other);
  std::vector<std::string> differences;
  for (const Field& field : kFields) {
    const std::string our_text = field.text(ours);
    const std::string their_text = field.text(theirs);
    if (our_text == their_text) continue;
    differences.push_back(absl::StrCat("model.", field.name, "=", our_text,
                                       ", the checkpoint has ", their_text));
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the checkpoint is of another model: ",
                   absl::StrJoin(differences, "; ")));
}

absl::StatusOr<std::unique_ptr<exec::InitialWeights>> OpenInitialCheckpoint(
    const v1::TrainingJob& job, const model::ModelDecl& declared) {
  const v1::InitConfig& init = job.init();
  if (!init.hugging_face().empty()) {
    ASSIGN_OR_RETURN(auto weights, OpenHuggingFace(job, declared),
                     _ << "init.hugging_face=" << init.hugging_face());
    return weights;
  }
  if (!init.megatron().empty()) {
    ASSIGN_OR_RETURN(auto weights, OpenMegatron(job, declared),
                     _ << "init.megatron=" << init.megatron());
    return weights;
  }
  return nullptr;
}

}  // namespace weft::service
