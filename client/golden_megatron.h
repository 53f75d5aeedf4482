// Reference models with Megatron-Core's names.
//
// config.json has Megatron-Core's fields (checkpoint/format/megatron_config.h).
// batch.safetensors has, for each step s and microbatch m, i64
// step{s}.mb{m}.input_ids and .labels and f32 .loss_mask, each [sequences,
// length]: the label of a position is the next one's token, and of the last one
// that which completes the sample. expected.json has for each step lm_loss,
// objective, grad_norm_before_clip and microbatches, whose moe_losses are raw
// losses by layer_number, from 1. trace_step0_mb0.safetensors, which may be
// absent, has of the first microbatch f32 logits [sequences, length, vocab]
// and, of its first layer with experts, i64 router.topk_ids [tokens, k], where
// tokens of the same position stand together.
#ifndef WEFT_CLIENT_GOLDEN_MEGATRON_H_
#define WEFT_CLIENT_GOLDEN_MEGATRON_H_

#include "absl/status/status.h"
#include "client/golden_case.h"

namespace weft::client {

// Fills `golden`, whose folder and name are set. Errors as ReadGoldenCase;
// INVALID_ARGUMENT also for a tensor of a batch that no job reads.
absl::Status ReadMegatronCase(GoldenCase& golden);

}  // namespace weft::client

#endif  // WEFT_CLIENT_GOLDEN_MEGATRON_H_
