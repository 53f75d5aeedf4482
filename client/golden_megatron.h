// Reference models with Megatron-Core's names.
//
// config.json has Megatron-Core's fields (checkpoint/format/megatron_config.h).
// batch.safetensors has, for each step s and microbatch m, i64
// step{s}.mb{m}.input_ids and .labels and f32 .loss_mask, each [sequences,
// length]: the label of a position is the next one's token, and of the last one
// that which completes the sample. There may be u8 .padding_mask of that shape,
// too, 1 for padding. expected.json has what each step must give:
// golden_megatron_expected.h. trace_step0_mb0.safetensors has of the first
// microbatch f32 logits [sequences, length, vocab] and, of its first layer with
// experts, i64 router.topk_ids [tokens, k], where tokens of the same position
// stand together; other values of the model in it are not compared.
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
