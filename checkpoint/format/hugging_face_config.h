// The config.json of a Hugging Face checkpoint: which model it is.
#ifndef WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_CONFIG_H_
#define WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_CONFIG_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "weft/v1/job.pb.h"

namespace weft::checkpoint {

// Architectures whose checkpoints can be read; "model_type" in config.json.
enum class HfFamily : uint8_t {
  kLlama,
  kMixtral,
  kQwen2Moe,
  kQwen3Moe,
  kDeepseekV3,
  kMamba2,
  kBamba,
  kGraniteMoeHybrid,
  kNemotronH,
};

// The "model_type" of a family, e.g. "qwen3_moe".
absl::string_view Name(HfFamily family);

struct HfConfig {
  HfFamily family = HfFamily::kLlama;
  // What follows from the text, with defaults written out: norm_epsilon is
  // always set, and so are, where there are layers that have them, num_kv_heads
  // and head_dim (but with MLA), rope_theta, and what moe, mla and mamba hold.
  // ffn_hidden_size is set when some layer is dense, moe when some layer has
  // experts. Families from DeepSeek-V3 on have a pattern: a group for each
  // decoder layer of two halves, a symbol for each of one; num_layers is not
  // set then. init_std is not set.
  v1::ModelConfig model;
};

// Largest config.json that is read, in bytes.
inline constexpr int64_t kMaxHfConfigBytes = 1 << 20;

// The model that the text of a config.json describes. A field that is absent
// has the default that the configuration class of its family gives it.
//
// Guarantees: each field of the text is either in the model, or cannot change
// what is trained, or is refused. The model's fields are in the ranges of
// job.proto, and dense_layers ascends.
// INVALID_ARGUMENT, naming all that is refused, each with its value and the
// rule (the first 64 when they are more).
absl::StatusOr<HfConfig> ParseHfConfig(absl::string_view json);

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_CONFIG_H_
