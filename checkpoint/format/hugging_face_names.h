// Which tensors of a Hugging Face checkpoint hold a parameter.
#ifndef WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_NAMES_H_
#define WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_NAMES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/format/hugging_face_config.h"
#include "checkpoint/format/tensor_slice.h"
#include "model/declaration.h"
#include "weft/v1/job.pb.h"

namespace weft::checkpoint {

// The tensors, all of each, that are `param` of the whole model:
//
//   qkv, qkv_bias                 queries, keys, values
//   mlp.gate_up, shared_gate_up   gate, up
//   experts.gate_up               for each expert: gate, up
//   experts.down                  for each expert: down
//   the rest                      one tensor
//
// GraniteMoeHybrid has gate and up, and all experts, in one tensor each.
//
// Requires: `config` is from ParseHfConfig.
// Guarantees: the elements of the tensors are as many as those of param.shape.
// INVALID_ARGUMENT, naming the parameter, when it is none of a decoder's, or
// its shape is not the one that follows from `config`. Layer N of the model is
// layer N there: a group of the pattern, or a symbol by itself.
absl::StatusOr<std::vector<TensorSlice>> HfTensorsOf(
    HfFamily family, const v1::ModelConfig& config,
    const model::ParamDecl& param);

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_NAMES_H_
