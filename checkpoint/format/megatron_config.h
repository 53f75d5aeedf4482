// The configuration of a model of Megatron-Core, under its field names: which
// model it is and what it minimises.
#ifndef WEFT_CHECKPOINT_FORMAT_MEGATRON_CONFIG_H_
#define WEFT_CHECKPOINT_FORMAT_MEGATRON_CONFIG_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "weft/v1/job.pb.h"

namespace weft::checkpoint {

struct MegatronConfig {
  // All that the text says, router losses included. init_std is not set.
  v1::ModelConfig model;
  v1::LossConfig loss;
};

// Largest text that is read, in bytes.
inline constexpr int64_t kMaxMegatronConfigBytes = 1 << 20;

// The model that a JSON object of Megatron-Core's fields describes
// (TransformerConfig and the arguments of GPTModel and HybridModel). Sizes must
// be given; a feature whose field is absent is off.
//
// Guarantees: each field of the text is either in the result, or cannot change
// what is trained, or is refused. Sizes are in the ranges of job.proto;
// coefficients of losses are finite.
// INVALID_ARGUMENT, naming all that is refused, each with its value and the
// rule (the first 64 when they are more).
absl::StatusOr<MegatronConfig> ParseMegatronConfig(absl::string_view json);

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_MEGATRON_CONFIG_H_
