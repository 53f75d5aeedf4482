// Which tensors of a Megatron-Core checkpoint hold a parameter.
//
// The names and layouts are those of GPTModel and HybridModel with one expert a
// tensor and all parallel sizes 1 (megatron/core/models and
// megatron/core/transformer). Layer N of the model is layer N there: all blocks
// of a layer share a number, and the last norm is decoder.final_layernorm; in a
// model whose layers all have one block it is decoder.final_norm. Depth N of
// multi-token prediction, "mtp.N" here, is mtp.layers.N there.
#ifndef WEFT_CHECKPOINT_FORMAT_MEGATRON_NAMES_H_
#define WEFT_CHECKPOINT_FORMAT_MEGATRON_NAMES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "checkpoint/format/tensor_slice.h"
#include "model/declaration.h"
#include "model/shape.h"

namespace weft::checkpoint {

// The slices of `param` of the model that `shape` is of:
//
//   qkv, qkv_bias     of linear_qkv, which holds for each group of heads its
//                     query heads, one key head and one value head, those of
//                     queries, then of keys, then of values
//   experts.gate_up   linear_fc1 of each expert: gate rows, then up rows
//   experts.up        linear_fc1 of each expert
//   experts.down      linear_fc2 of each expert
//   the rest          one tensor of the parameter's shape
//
// Guarantees: the slices have as many elements as param.shape.
// INVALID_ARGUMENT, naming the parameter, when it is none of a decoder's or is
// outside `shape`.
absl::StatusOr<std::vector<TensorSlice>> MegatronTensorsOf(
    const model::Shape& shape, const model::ParamDecl& param);

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_MEGATRON_NAMES_H_
