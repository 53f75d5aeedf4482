// Reference models with Hugging Face's names.
//
// config.json is that of the architecture; batch.safetensors has i64 input_ids
// [steps, batch, sequence] and f32 logits_step0 [batch, sequence, vocab], and
// expected.json losses, grad_norms, the optimizer and the sizes. Position t
// predicts token t + 1 and the last position nothing, so that a sequence is one
// sample of sequence - 1 predictions.
#ifndef WEFT_CLIENT_GOLDEN_HUGGING_FACE_H_
#define WEFT_CLIENT_GOLDEN_HUGGING_FACE_H_

#include "absl/status/status.h"
#include "client/golden_case.h"

namespace weft::client {

// Fills `golden`, whose folder and name are set. Errors as ReadGoldenCase.
absl::Status ReadHuggingFaceCase(GoldenCase& golden);

}  // namespace weft::client

#endif  // WEFT_CLIENT_GOLDEN_HUGGING_FACE_H_
