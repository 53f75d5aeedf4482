#include "checkpoint/format/hugging_face_config.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "checkpoint/format/hugging_face_reader.h"
#include "checkpoint/format/json_fields.h"
#include "nlohmann/json.hpp"

namespace weft::checkpoint {
namespace {

struct Family {
  HfFamily family;
  const char* model_type;
  const char* architecture;
  void (*read)(HfReader& reader);
};

// In the order of HfFamily.
constexpr Family kFamilies[] = {
    {HfFamily::kLlama, "llama", "LlamaForCausalLM", &ReadHfLlama},
    {HfFamily::kMixtral, "mixtral", "MixtralForCausalLM", &ReadHfMixtral},
    {HfFamily::kQwen2Moe, "qwen2_moe", "Qwen2MoeForCausalLM", &ReadHfQwen2Moe},
    {HfFamily::kQwen3Moe, "qwen3_moe", "Qwen3MoeForCausalLM", &ReadHfQwen3Moe},
    {HfFamily::kDeepseekV3, "deepseek_v3", "DeepseekV3ForCausalLM",
     &ReadHfDeepseekV3},
    {HfFamily::kMamba2, "mamba2", "Mamba2ForCausalLM", &ReadHfMamba2},
    {HfFamily::kBamba, "bamba", "BambaForCausalLM", &ReadHfBamba},
    {HfFamily::kGraniteMoeHybrid, "granitemoehybrid",
     "GraniteMoeHybridForCausalLM", &ReadHfGraniteMoeHybrid},
    {HfFamily::kNemotronH, "nemotron_h", "NemotronHForCausalLM",
     &ReadHfNemotronH},
};

// Fields that cannot change what is trained in any family, and why.
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

void CheckArchitecture(const Family& family, FieldReader& fields) {
  fields.Take("model_type");
  const nlohmann::json* architectures = fields.TakeUnlessNull("architectures");
  if (architectures != nullptr &&
      *architectures != nlohmann::json::array({family.architecture})) {
    fields.Refuse("architectures",
                  absl::StrCat("must be [\"", family.architecture, "\"]"));
  }
}

absl::StatusOr<HfConfig> Parse(const Family& family,
                               const nlohmann::json& object) {
  HfReader reader = {FieldReader(object), {}};
  CheckArchitecture(family, reader.fields);
  family.read(reader);
  for (const WithoutEffect& field : kWithoutEffect) {
    reader.fields.Take(field.name);
  }
  reader.fields.RefuseTheRest(
      absl::StrCat("is not known for model_type \"", family.model_type, "\""));
  RETURN_IF_ERROR(reader.fields.Refusals());
  if (!reader.model.pattern().empty()) reader.model.clear_num_layers();
  return HfConfig{family.family, reader.model};
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
      return Parse(family, object);
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
