// The mixers and the pattern of a model in Megatron-Core's field names. Only
// for megatron_config.cc.
#ifndef WEFT_CHECKPOINT_FORMAT_MEGATRON_LAYERS_H_
#define WEFT_CHECKPOINT_FORMAT_MEGATRON_LAYERS_H_

#include "checkpoint/format/json_fields.h"
#include "weft/v1/job.pb.h"

namespace weft::checkpoint {

// model_class, hybrid_layer_pattern and num_layers: a GPTModel has as many
// decoder layers, a HybridModel as many symbols in its pattern. Sets pattern
// and num_layers.
void ReadMegatronPattern(FieldReader& fields, v1::ModelConfig& model);

// Attention, MLA and Mamba-2, as far as the model has them.
//
// Requires: pattern and widths of `model` have been read.
void ReadMegatronMixers(FieldReader& fields, v1::ModelConfig& model);

// Multi-token prediction. Requires: dense_layers of `model` have been read.
void ReadMegatronMtp(FieldReader& fields, v1::ModelConfig& model);

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_MEGATRON_LAYERS_H_
