// Which tensors of a Hugging Face checkpoint hold a parameter.
#ifndef WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_NAMES_H_
#define WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/format/hugging_face_config.h"
#include "model/declaration.h"
#include "weft/v1/job.pb.h"

namespace weft::checkpoint {

// A tensor as the checkpoint has it.
struct HfTensor {
  std::string name;  // e.g. "model.layers.3.self_attn.q_proj.weight"
  std::vector<int64_t> shape;

  int64_t elements() const;
};

// The tensors whose elements, one tensor after another and each in row-major
// order, are those of `param` of the whole model:
//
//   qkv, qkv_bias                 queries, keys, values
//   mlp.gate_up, shared_gate_up   gate, up
//   experts.gate_up               for each expert: gate, up
//   experts.down                  for each expert: down
//   the rest                      one tensor
//
// Requires: `config` is from ParseHfConfig.
// Guarantees: the elements of the tensors are as many as those of param.shape.
// INVALID_ARGUMENT, naming the parameter, when it is none of a decoder's, or
// its shape is not the one that follows from `config`.
absl::StatusOr<std::vector<HfTensor>> HfTensorsOf(
    HfFamily family, const v1::ModelConfig& config,
    const model::ParamDecl& param);

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_NAMES_H_
