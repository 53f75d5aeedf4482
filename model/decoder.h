// Declares the decoder-only model of a job: embedding, decoder layers of blocks
// (attention, a Mamba-2 mixer, a dense MLP, experts), head and loss.
//
// The enums number the args, params and grads of each phase as worker/layers
// receives them. What the shape leaves out keeps its number and is null there.
// Args of whose format nothing is said have that of activations, except these,
// which are fp32: rstd, lse, scores, logits of the router, probabilities, the
// shared expert's gate, their gradients, and scratch of attention.
#ifndef WEFT_MODEL_DECODER_H_
#define WEFT_MODEL_DECODER_H_

#include "model/declaration.h"
#include "model/decoder_mla.h"
#include "model/shape.h"

namespace weft::model {

ModelDecl DeclareDecoder(const Shape& shape);

// [T] tokens of a microbatch on one rank, [H] hidden, [Q] qkv columns, [A]
// heads*head_dim, [N] rows sent (Shape::sent_rows), [R] rows received, [E]
// experts, [Ep] experts padded (Shape::balance_columns), [B] sequences, U(F)
// outputs of the first projection of a feed-forward of width F: 2F, gate and
// up, with SwiGLU, else F.
//
// Each Step is a step of forward, see StepDecl. A phase kRecompute has the args
// and the parameters of forward, as far as its steps use them.
//
// What is said to be gathered is present where Shape::gathers_tokens(): a rank
// has the tokens of all ranks of its EP group, [G] = ep*T, those of rank 0
// first, and of them the rows of its own experts, [L] of them.

namespace load {
enum Forward {
  kTokens,  // write i32[T]
  kLabels,  // write i32[T] the token after each, or ops::kIgnoredLabel where
            // the loss mask has 0
  kValid,  // write i32[T] 1, or 0 where a token is padding; with a padding mask
  // Write, for every depth of multi-token prediction, tokens and labels as many
  // tokens further, with tokens 0 and labels that do not count past the end of
  // a sequence; then, with routing that is replayed, i32[T,k] for each layer
  // with experts.
  kDepths,
};
}  // namespace load

// Present with a loss mask, a padding mask or depths. What is written are
// factors by which losses count more than without masks: a mean over what
// counts is all tokens by those that count times the mean over all. See
// kernels/ops/loss_weights.
namespace loss_weights {
enum Forward {
  kGathered,  // scratch f64[world,3+depths] of each rank: tokens that count as
              // labels in the microbatch and in the step, valid tokens in the
              // microbatch, labels of each depth
  kWeights,   // write [1,6]; with masks only
  kDepths,    // write [1,1] for each depth
};
}  // namespace loss_weights

namespace embedding {
enum Forward { kTokens, kY };  // read tokens; write y [T,H]
// read tokens, dy [T,H]; scratch i32, see
// ops::EmbeddingBackwardScratchElements
enum Wgrad { kWTokens, kWDy, kWScratch };
enum Params { kTable };  // [V,H]; also the only grad
}  // namespace embedding

// The input of a depth: projection [norm of the embedding, norm of the state].
// The state is the final norm, of the depth before or the model's own, of x.
namespace mtp_input {
enum Forward {
  kTokens,         // read i32[T] of this depth
  kX,              // read [T,H]
  kEmbedding,      // write [T,H] rows of the table
  kEmbeddingRstd,  // write [T]
  kEmbeddingNorm,  // write [T,H]
  kRstd,           // write [T] of the final norm
  kState,          // write [T,H]
  kStateRstd,      // write [T]
  kStateNorm,      // write [T,H]
  kY,              // write [T,H]
};
enum Dgrad {
  kDDy,  // read [T,H]
  kDX,   // read, like all up to the next
  kDEmbedding,
  kDEmbeddingRstd,
  kDRstd,
  kDState,
  kDStateRstd,
  kDHeadGrad,       // read [T,H] gradient of x that the head gave
  kDScratch,        // scratch [T,H]
  kDEmbeddingGrad,  // write [T,H]
  kDDx,             // write [T,H]
};
// read tokens, the two norms, gradients of the embedding and of y; scratch i32,
// see ops::EmbeddingBackwardScratchElements
enum Wgrad {
  kWTokens,
  kWEmbeddingNorm,
  kWStateNorm,
  kWEmbeddingGrad,
  kWDy,
  kWScratch,
};
enum Params {
  kTable,       // [V,H]
  kENorm,       // [H]
  kHNorm,       // [H]
  kProjection,  // [H,2H]
  kFinalNorm,   // [H]
};
enum DgradGrads { kGENorm, kGHNorm, kGFinalNorm };
enum WgradGrads { kGTable, kGProjection };
}  // namespace mtp_input

// Each block of a layer maps the residual stream: x to y and, back, dy to dx.
// What it adds to x has the gradient kBranchGrad: dy times residual_multiplier.
// With a multiplier dgrad writes it, else it is dy itself.
namespace attention {
enum Forward {
  kX,        // read  x [T,H]
  kRstd,     // write [T]
  kXn,       // write [T,H] norm1(x)
  kQk,       // write [T,(heads+kv_heads)*head_dim] before their norms
  kQkRstd,   // write [T,heads+kv_heads]; these two with qk_norm only
  kQkv,      // write [T,Q] after rotary
  kAttnOut,  // write [T,A]
  kLse,      // write [T,heads]
  kScratch,  // scratch, see ops::AttentionScratchElements
  kY,        // write [T,H] x + residual_multiplier * out_proj(attn)
};
enum Step { kNormStep, kProjectStep, kCoreStep, kOutStep };
enum Dgrad {
  kDDy,           // read [T,H]
  kDX,            // read x
  kDRstd,         // read
  kDXn,           // read
  kDQk,           // read
  kDQkRstd,       // read; these two with qk_norm only
  kDQkv,          // read
  kDAttnOut,      // read
  kDLse,          // read
  kDAttnScratch,  // scratch
  kDScratch,      // scratch [T,max(H,A)]
  kDQkvGrad,      // write [T,Q]
  kDDx,           // write [T,H]
  kDBranchGrad,   // write [T,H]; with a residual_multiplier only
};
enum Wgrad { kWXn, kWQkvGrad, kWAttnOut, kWBranchGrad };  // read
// Read by forward and by dgrad.
enum Params {
  kNorm1,  // [H]
  kQkvW,   // [Q,H]
  kOutW,   // [H,A]
  kQkvB,   // [Q]         optional, like the next three
  kOutB,   // [H]
  kQNorm,  // [head_dim]
  kKNorm,  // [head_dim]
};
enum DgradGrads { kGNorm1, kGQNorm, kGKNorm };
enum WgradGrads { kGQkv, kGOut, kGQkvB, kGOutB };
}  // namespace attention

// [C] channels of the convolution, of x, B and C; [P] columns projected: z, C
// and dt; [D] heads*head_dim; [G] groups; [M] heads, all of Mamba-2.
namespace mamba {
enum Forward {
  kX,          // read  x [T,H]
  kRstd,       // write [T]
  kXn,         // write [T,H] norm(x)
  kProjected,  // write [T,P] in_proj(xn)
  kConv,       // write [T,C] after the convolution and SiLU
  kScan,       // write [T,D] output of the scan
  kGatedRstd,  // write [T,G]
  kGated,      // write [T,D] gated norm
  kScratch,    // scratch f32, see ops::SsmScanForwardScratchElements
  kY,          // write [T,H] x + out_proj(gated)
};
enum Step { kNormStep, kInStep, kMixStep, kOutStep };
enum Dgrad {
  kDDy,             // read [T,H]
  kDX,              // read x
  kDRstd,           // read
  kDProjected,      // read
  kDConv,           // read
  kDScan,           // read
  kDGatedRstd,      // read
  kDScratch,        // scratch f32, see ops::SsmScanBackwardScratchElements
  kDConvGrad,       // scratch f32 [T,C]
  kDScanGrad,       // scratch [T,D] gradient of gated, then of scan
  kDXnGrad,         // scratch [T,H]
  kDProjectedGrad,  // write [T,P]
  kDDx,             // write [T,H]
  kDBranchGrad,     // write [T,H]; with a residual_multiplier only
};
enum Wgrad { kWXn, kWProjectedGrad, kWGated, kWBranchGrad };  // read
// Read by forward and by dgrad.
enum Params {
  kNorm,       // [H]
  kInW,        // [P,H]
  kConvW,      // [C,1,width]
  kConvB,      // [C]         optional
  kDtBias,     // [M]
  kALog,       // [M]
  kD,          // [M]
  kGatedNorm,  // [D]
  kOutW,       // [H,D]
  kInB,        // [P]         optional, like the next
  kOutB,       // [H]
};
enum DgradGrads {
  kGNorm,
  kGConvW,
  kGConvB,
  kGDtBias,
  kGALog,
  kGD,
  kGGatedNorm,
};
enum WgradGrads { kGIn, kGOut, kGInB, kGOutB };
}  // namespace mamba

namespace pre_dispatch {
enum Forward {
  kX,          // read  x [T,H]
  kRstd2,      // write [T]
  kXn2,        // write [T,H] norm2(x)
  kLogits,     // scratch [T,E]; with z and a sigmoid write
  kScores,     // write [T,E] softmax over all experts, or sigmoids
  kTopKIndex,  // write i32[T,k]
  kTopKProb,   // write [T,k]
  kCountsOut,  // write i32[1,E] rows this rank sends each expert
  kOffsets,    // scratch i64[E+1]; absent when tokens are gathered
  // -1 stands for the row of a slot that is dropped, and for the slot and the
  // token of a row that holds none.
  kRowOfSlot,   // write i32[T,k] row in the send buffer; gathered: element of
                // what comes back, see ops::IndexPartialSums
  kTokenOfRow,  // write i32[N]; absent when tokens are gathered, as the next
  kSlotOfRow,   // write i32[N] t*k+slot
  kSortedRows,  // write i32[T,k] rows of a token by ascending expert;
                // gathered: partial sums by ascending rank
  kSortedExperts,  // write i32[T,k] those experts; gathered: those ranks
  kSendRows,       // write [N,H]; absent when tokens are gathered, as the next
  kSendProb,       // write [N]
  kKeptIndex,      // scratch i32[T,k] topk_index, -1: dropped; with a capacity;
                   // gathered: write
  // Present with a bias of experts.
  kBias,            // scratch [1,E]
  kKeptCounts,      // scratch i32[1,E] tokens each expert keeps
  kPreviousCounts,  // read f64[1,E] kStepCounts of the microbatch before; none
                    // in the first
  kStepCounts,   // write f64[1,E] sum of kKeptCounts over the microbatches of
                 // the step so far
  kReplayIndex,  // read i32[T,k], see load; with routing that is replayed
  // Present with losses of the router that need them, see
  // kernels/ops/router_loss.
  kRouterLse,       // write [T] logsumexp of the logits; z
  kZLoss,           // write host f64[1]
  kSequenceCounts,  // write i32[B,E] tokens that chose an expert; sequence_aux
  kSequenceAux,     // write host f64[1]
  kScoreSums,       // write f64[1,E] sum of scores over tokens; aux, global_aux
  kPlainIndex,      // scratch i32[T,k] choices of valid tokens by scores alone,
                    // where they are not topk_index
  kLossScores,   // scratch [T,E] scores that add up to 1, of valid tokens; with
                 // a sigmoid or padding
  kLossCounts,   // write i32[1,E] tokens that choose an expert, where they are
                 // not kCountsOut; aux, global_aux
  kValid,        // read i32[T]; with padding
  kLossWeights,  // read [1,6]; with padding
};
enum Step { kNormStep, kRouteStep, kSendStep };
enum Dgrad {
  kDDy,             // read [T,H]
  kDX,              // read
  kDRstd2,          // read
  kDXn2,            // read
  kDScores,         // read
  kDTopKIndex,      // read
  kDTopKProb,       // read
  kDRowOfSlot,      // read
  kDSortedRows,     // read
  kDSortedExperts,  // read
  kDSendRows,       // read [N,H] gradient of the rows sent; gathered: [G,H] the
                    // group's partial sums of it
  kDSendProb,       // read [N] gradient of their probabilities; gathered: [G*k]
  kDXn2Grad,        // scratch [T,H]
  kDLogitsGrad,     // scratch [T,E]
  kDTopKGrad,       // scratch [T,k]
  kDDx,             // write [T,H]
  // Present with losses of the router that need them.
  kDRouterLse,       // read; z
  kDLogits,          // read; z and a sigmoid
  kDBalanceCounts,   // read [1,Ep] of all ranks; aux
  kDRunningCounts,   // read [1,Ep]; global_aux
  kDSequenceCounts,  // read; sequence_aux
  kDScoresGrad,      // scratch [T,E]; all but z
  kDLossWeights,    // read [1,6]; with padding, or a mask when losses are means
                    // over tokens
  kDValid,          // read; with padding
  kDSharedXn2Grad,  // read [T,H] the shared expert's part; with one only
};
// Read by forward and by dgrad.
enum Params {
  kNorm2,    // [H]
  kRouterW,  // [E,H]
};
enum DgradGrads { kGNorm2, kGRouter };
}  // namespace pre_dispatch

// Present when there is a shared expert: behind pre_dispatch or, when it is
// overlapped, behind the dispatch.
namespace shared_expert {
enum Forward {
  kXn2,   // read  [T,H] norm2(x)
  kUp,    // write [T,U(shared)]
  kAct,   // write [T,shared]
  kOut,   // write [T,H]
  kGate,  // write [T] sigmoid(gate_w . xn2); gated only
};
enum Step { kUpStep, kDownStep };
enum Dgrad {
  kDBranchGrad,  // read  [T,H] dy or, with a residual_multiplier, that times it
  kDUp,          // read
  kDActGrad,     // scratch [T,shared]
  kDUpGrad,      // write [T,U(shared)]
  kDGate,        // read; gated only, like the next
  kDGateGrad,    // write [T] gradient of the gate before its sigmoid
  kDXn2Grad,     // write [T,H]
};
enum Wgrad {
  kWXn2,  // read, like all
  kWUpGrad,
  kWAct,
  kWBranchGrad,
  kWGateGrad,  // gated only
};
// Read by forward and by dgrad.
enum Params {
  kUpW,    // [U(shared),H]
  kDownW,  // [H,shared]
  kGateW,  // [1,H]; gated only
};
enum WgradGrads { kGUp, kGDown, kGGate };
}  // namespace shared_expert

namespace counts {
enum Forward {
  kLocal,  // read i32[1,E]
  kAll,    // write host i32[ep,E]
  // Gathered:
  kTopKIndex,      // read i32[T,k]; with a capacity what stays
  kAllIndex,       // scratch i32[G,k]
  kOffsets,        // write i64[1,L+1] first row of each own expert
  kRowOfSlot,      // write i32[G,k]; what has no row here has ops::kAbsent
  kSlotOfRow,      // write i32[R]
  kTokenOfRow,     // write i32[R]
  kSortedRows,     // write i32[G,k]
  kSortedExperts,  // write i32[G,k]
};
}  // namespace counts

// Counts of all ranks, and the losses that need them. Runs in forward and is
// needed by the router's backward only.
namespace balance {
enum Forward {
  kCounts,     // read i32[1,E] tokens that choose an expert, of this rank
  kScoreSums,  // read f64[1,E] of this rank
  kPrevious,   // read [1,Ep] kRunning of the microbatch before; none in the
               // first
  kTotal,      // write [1,Ep] those of all ranks; without aux scratch
  kRunning,  // write [1,Ep] sum of kTotal over the step's microbatches so far;
             // global_aux only
  kAux,      // write host f64[1]
  kGlobalAux,    // write host f64[1]
  kLossWeights,  // read [1,6]; with padding
};
}  // namespace balance

namespace dispatch {
enum Forward {
  kSendRows,  // read [N,H]; gathered: [T,H], of tokens
  kSendProb,  // read [N]; gathered: [T,k]
  kAll,       // read counts; absent when tokens are gathered
  kRows,      // write [R,H]
  kProb,      // write [R]
  // Gathered:
  kOffsets,     // read
  kTokenOfRow,  // read
  kSlotOfRow,   // read
  kAllRows,     // scratch [G,H]
  kAllProb,     // scratch [G,k]
};
enum Step { kRowsStep, kProbStep };
enum Dgrad {
  kDRowsGrad,      // read [R,H]
  kDProbGrad,      // read [R]
  kDAll,           // read counts; absent when tokens are gathered
  kDSendRowsGrad,  // write [N,H]; gathered: [G,H]
  kDSendProbGrad,  // write [N]; gathered: [G*k]
  // Gathered:
  kDSortedRows,     // read
  kDSortedExperts,  // read
  kDRowOfSlot,      // read
  kDPartial,        // scratch [G,H]
  kDPartialProb,    // scratch [G,k]
};
}  // namespace dispatch

namespace experts {
// When tokens are gathered, offsets are read instead of counts.
// read rows [R,H], prob [R], counts; write up [R,U(F)], act [R,F], out [R,H]
enum Forward { kRows, kProb, kAll, kUp, kAct, kOut, kOffsets };
enum Step { kUpStep, kActStep, kDownStep };
// read d_out [R,H], up, prob, counts; scratch d_act [R,F]; write
// d_up [R,U(F)], d_rows [R,H], d_prob [R]
enum Dgrad {
  kDOutGrad,
  kDUp,
  kDProb,
  kDAll,
  kDActGrad,
  kDUpGrad,
  kDRowsGrad,
  kDProbGrad,
  kDOffsets,
};
// read rows, act, d_up, d_out, counts
enum Wgrad { kWRows, kWAct, kWUpGrad, kWOutGrad, kWAll, kWOffsets };
enum Params { kUpW, kDownW };  // [E,U(F),H], [E,H,F]; also the wgrad grads
}  // namespace experts

namespace combine {
// read out [R,H], counts, x, sorted_rows, sorted_experts, [shared_out];
// scratch back [N,H]; write y [T,H]
enum Forward {
  kOut,
  kAll,
  kX,
  kSortedRows,
  kSortedExperts,
  kBack,
  kY,
  kSharedOut,  // present when there is a shared expert
  // Gathered, when back is [G,H] and counts are not read:
  kGroupRows,     // read i32[G,k] own rows of a token by ascending expert
  kGroupExperts,  // read i32[G,k]
  kPartial,       // scratch [G,H]
};
// read dy, counts, token_of_row; scratch [N,H]; write d_out [R,H], and
// branch_grad [T,H] with a residual_multiplier. Gathered: offsets are read
// instead of counts, token_of_row is that of own rows i32[R], and scratch is
// [G,H].
enum Dgrad {
  kDDy,
  kDAll,
  kDTokenOfRow,
  kDBack,
  kDOutGrad,
  kDBranchGrad,
  kDOffsets,
};
}  // namespace combine

namespace mlp {
// read x; write rstd2, xn2, up [T,U(F)], act [T,F], y [T,H]
enum Forward { kX, kRstd2, kXn2, kUp, kAct, kY };
enum Step { kNormStep, kUpStep, kActStep, kDownStep };
// read dy, x, rstd2, xn2, up; scratch d_act [T,F], d_xn2 [T,H]; write
// d_up [T,U(F)], dx [T,H], and branch_grad [T,H] with a residual_multiplier
enum Dgrad {
  kDDy,
  kDX,
  kDRstd2,
  kDXn2,
  kDUp,
  kDActGrad,
  kDXn2Grad,
  kDUpGrad,
  kDDx,
  kDBranchGrad,
};
enum Wgrad { kWXn2, kWUpGrad, kWAct, kWBranchGrad };
enum Params { kNorm2, kUpW, kDownW };
enum DgradGrads { kGNorm2 };
enum WgradGrads { kGUp, kGDown };
}  // namespace mlp

// One for the model's state, then one for that of each depth.
namespace head {
enum Forward { kX, kRstd, kXn, kLogits };  // read; write [T], [T,H], [T,V]
// read d_logits [T,V], x, rstd, xn; scratch [T,H]; write dx [T,H]
enum Dgrad { kDLogitsGrad, kDX, kDRstd, kDXn, kDXnGrad, kDDx };
enum Wgrad { kWLogitsGrad, kWXn };
enum Params { kNorm, kOutputW };  // [H], [V,H] (the embedding table when tied)
enum DgradGrads { kGNorm };
enum WgradGrads { kGOutput };
}  // namespace head

namespace loss {
// read logits, labels; write lse [T], loss f64[1]
enum Forward { kLogits, kLabels, kLse, kLoss };
// read logits, labels, lse; write d_logits [T,V]; read weights, a token's first
// (with a loss mask, and of depths, only)
enum Dgrad { kDLogits, kDLabels, kDLse, kDLogitsGrad, kDWeights };
}  // namespace loss

}  // namespace weft::model

#endif  // WEFT_MODEL_DECODER_H_
