// Reads the weights of a Megatron-Core checkpoint as parameters of a model.
#ifndef WEFT_CHECKPOINT_MEGATRON_H_
#define WEFT_CHECKPOINT_MEGATRON_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/checkpoint_tensors.h"
#include "model/shape.h"
#include "weft/v1/job.pb.h"

namespace weft::checkpoint {

// The tensors of `folder`/model.safetensors, under Megatron-Core's names for
// the model that `shape` is of (see format/megatron_names.h). NOT_FOUND and so
// on, as the file system says; DATA_LOSS when the file breaks the format's
// rules.
absl::StatusOr<std::unique_ptr<CheckpointTensors>> OpenMegatronCheckpoint(
    const std::string& folder, const model::Shape& shape);

// The model that `folder`/config.json describes; none when there is no such
// file. As ParseMegatronConfig (format/megatron_config.h), with the path.
absl::StatusOr<std::optional<v1::ModelConfig>> ReadMegatronModel(
    const std::string& folder);

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_MEGATRON_H_
