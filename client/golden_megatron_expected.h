// expected.json of a reference model with Megatron-Core's names.
//
// For each step lm_loss, objective, grad_norm_before_clip, tokens_per_expert
// [microbatches, layers with experts, experts] and microbatches, each with
// lm_loss_sum, num_tokens, their quotient lm_loss and, by kind, moe_losses: of
// every layer with experts its layer_number, from 1, the coefficient and the
// raw loss; with multi-token prediction mtp_losses, of every depth the mean
// over its labels. With M microbatches, N tokens that the losses count and T
// valid tokens of a microbatch, objective is
//
//   1/M sum_m (lm_loss_m + sum coeff raw + d_m)           means of microbatches
//   1/N sum_m (lm_loss_sum_m + T_m sum coeff raw + num_tokens_m d_m)
//                                                         a mean over tokens
//
// where d is the loss factor times the mean of mtp_losses, and lm_loss of the
// step is the same without routers and depths.
#ifndef WEFT_CLIENT_GOLDEN_MEGATRON_EXPECTED_H_
#define WEFT_CLIENT_GOLDEN_MEGATRON_EXPECTED_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "client/golden_case.h"

namespace weft::client {

// Tokens that the loss counts as labels: [steps, microbatches].
using CountedTokens = std::vector<std::vector<int64_t>>;

// What the batches of a case say of its tokens, both [steps, microbatches].
struct BatchTokens {
  CountedTokens counted;
  CountedTokens valid;  // no padding
};

// Fills the steps and the optimizer of `golden`, whose model, loss and batches
// are set; `tokens` are those of the batches. INVALID_ARGUMENT or DATA_LOSS,
// naming file and fields, when a field is missing, unknown, or contradicts the
// batches, config.json or another field.
absl::Status ReadMegatronExpected(const BatchTokens& tokens,
                                  GoldenCase& golden);

}  // namespace weft::client

#endif  // WEFT_CLIENT_GOLDEN_MEGATRON_EXPECTED_H_
