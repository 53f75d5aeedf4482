// Declares the decoder-only transformer of a job: embedding, decoder layers
// (attention with experts or a dense MLP), head and loss.
//
// The enums number the args, params and grads of each phase as worker/layers
// receives them. What the shape leaves out keeps its number and is null there.
// Args of whose format nothing is said have that of activations, except these,
// which are fp32: rstd, lse, scores, logits of the router, probabilities, the
// shared expert's gate, their gradients, and scratch of attention.
#ifndef WEFT_MODEL_DECODER_H_
#define WEFT_MODEL_DECODER_H_

#include "model/declaration.h"
#include "model/shape.h"

namespace weft::model {

ModelDecl DeclareDecoder(const Shape& shape);

// [T] tokens of a microbatch on one rank, [H] hidden, [Q] qkv columns, [A]
// heads*head_dim, [N] = T*top_k rows sent, [R] rows received, [E] experts,
// U(F) outputs of the first projection of a feed-forward of width F: 2F, gate
// and up, with SwiGLU, else F.

namespace load {
// write i32[T] tokens and i32[T] labels: the token after each
enum Forward { kTokens, kLabels };
}  // namespace load

namespace embedding {
enum Forward { kTokens, kY };  // read tokens; write y [T,H]
// read tokens, dy [T,H]; scratch i32, see
// ops::EmbeddingBackwardScratchElements
enum Wgrad { kWTokens, kWDy, kWScratch };
enum Params { kTable };  // [V,H]; also the only grad
}  // namespace embedding

// Attention half, shared by both kinds of decoder layer, comes first in the
// args of pre_dispatch.
namespace pre_dispatch {
enum Forward {
  kX,            // read  x [T,H]
  kRstd1,        // write [T]
  kXn1,          // write [T,H] norm1(x)
  kQk,           // write [T,(heads+kv_heads)*head_dim] before their norms
  kQkRstd,       // write [T,heads+kv_heads]; these two with qk_norm only
  kQkv,          // write [T,Q] after rotary
  kAttnOut,      // write [T,A]
  kLse,          // write [T,heads]
  kAttnScratch,  // scratch, see ops::AttentionScratchElements
  kH1,           // write [T,H] x + out_proj(attn)
  // A dense layer's pre_dispatch ends here.
  kRstd2,          // write [T]
  kXn2,            // write [T,H] norm2(h1)
  kLogits,         // scratch [T,E]
  kScores,         // write [T,E] softmax over all experts
  kTopKIndex,      // write i32[T,k]
  kTopKProb,       // write [T,k]
  kCountsOut,      // write i32[1,E] rows this rank sends each expert
  kOffsets,        // scratch i64[E+1]
  kRowOfSlot,      // write i32[T,k] row in the send buffer
  kTokenOfRow,     // write i32[N]
  kSlotOfRow,      // write i32[N] t*k+slot
  kSortedRows,     // write i32[T,k] rows of a token by ascending expert
  kSortedExperts,  // write i32[T,k] those experts
  kSendRows,       // write [N,H]
  kSendProb,       // write [N]
  // Present when there is a shared expert.
  kSharedUp,    // write [T,U(shared)]
  kSharedAct,   // write [T,shared]
  kSharedOut,   // write [T,H]
  kSharedGate,  // write [T] sigmoid(gate_w . xn2); gated only
};
enum Dgrad {
  kDDy,           // read [T,H] gradient of the layer's output
  kDX,            // read x
  kDRstd1,        // read
  kDXn1,          // read
  kDQk,           // read
  kDQkRstd,       // read; these two with qk_norm only
  kDQkv,          // read
  kDAttnOut,      // read
  kDLse,          // read
  kDAttnScratch,  // scratch
  kDScratch,      // scratch [T,max(H,A)]
  kDH1Grad,       // write [T,H] gradient of h1; dense: read instead
  kDQkvGrad,      // write [T,Q]
  kDDx,           // write [T,H] gradient of x
  // MoE layers only.
  kDH1,             // read
  kDRstd2,          // read
  kDXn2,            // read
  kDScores,         // read
  kDTopKIndex,      // read
  kDTopKProb,       // read
  kDRowOfSlot,      // read
  kDSortedRows,     // read
  kDSortedExperts,  // read
  kDSendRows,       // read [N,H] gradient of the rows sent
  kDSendProb,       // read [N] gradient of their probabilities
  kDXn2Grad,        // scratch [T,H]
  kDLogitsGrad,     // scratch [T,E]
  kDTopKGrad,       // scratch [T,k]
  // Present when there is a shared expert.
  kDSharedUp,        // read
  kDSharedActGrad,   // scratch [T,shared]
  kDSharedUpGrad,    // write [T,U(shared)]
  kDSharedGate,      // read; gated only, like the next
  kDSharedGateGrad,  // write [T] gradient of the gate before its sigmoid
};
enum Wgrad {
  kWXn1,      // read
  kWQkvGrad,  // read
  kWAttnOut,  // read
  kWH1Grad,   // read
  // Present when there is a shared expert.
  kWXn2,             // read
  kWSharedUpGrad,    // read
  kWSharedAct,       // read
  kWDy,              // read
  kWSharedGateGrad,  // read; gated only
};
// Read by forward and by dgrad.
enum Params {
  kNorm1,        // [H]
  kQkvW,         // [Q,H]
  kOutW,         // [H,A]
  kQkvB,         // [Q]         optional, like the next three
  kOutB,         // [H]
  kQNorm,        // [head_dim]
  kKNorm,        // [head_dim]
  kNorm2,        // [H]      MoE layers only, like the rest
  kRouterW,      // [E,H]
  kSharedUpW,    // [U(shared),H]
  kSharedDownW,  // [H,shared]
  kSharedGateW,  // [1,H]
};
// Dense layers end before norm2.
enum DgradGrads { kGNorm1, kGQNorm, kGKNorm, kGNorm2, kGRouter };
enum WgradGrads {
  kGQkv,
  kGOut,
  kGQkvB,
  kGOutB,
  kGSharedUp,
  kGSharedDown,
  kGSharedGate,
};
}  // namespace pre_dispatch

namespace counts {
enum Forward { kLocal, kAll };  // read i32[1,E]; write host i32[ep,E]
}  // namespace counts

namespace dispatch {
enum Forward { kSendRows, kSendProb, kAll, kRows, kProb };  // write [R,H], [R]
// read [R,H], [R], counts; write [N,H], [N]
enum Dgrad { kDRowsGrad, kDProbGrad, kDAll, kDSendRowsGrad, kDSendProbGrad };
}  // namespace dispatch

namespace experts {
// read rows [R,H], prob [R], counts; write up [R,U(F)], act [R,F], out [R,H]
enum Forward { kRows, kProb, kAll, kUp, kAct, kOut };
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
};
// read rows, act, d_up, d_out, counts
enum Wgrad { kWRows, kWAct, kWUpGrad, kWOutGrad, kWAll };
enum Params { kUpW, kDownW };  // [E,U(F),H], [E,H,F]; also the wgrad grads
}  // namespace experts

namespace combine {
// read out [R,H], counts, h1, sorted_rows, sorted_experts, [shared_out];
// scratch back [N,H]; write y [T,H]
enum Forward {
  kOut,
  kAll,
  kH1,
  kSortedRows,
  kSortedExperts,
  kBack,
  kY,
  kSharedOut,  // present when there is a shared expert
};
// read dy, counts, token_of_row; scratch [N,H]; write d_out [R,H]
enum Dgrad { kDDy, kDAll, kDTokenOfRow, kDBack, kDOutGrad };
}  // namespace combine

namespace mlp {
// read h1; write rstd2, xn2, up [T,U(F)], act [T,F], y [T,H]
enum Forward { kH1, kRstd2, kXn2, kUp, kAct, kY };
// read dy, h1, rstd2, xn2, up; scratch d_act [T,F], d_xn2 [T,H]; write
// d_up [T,U(F)], d_h1 [T,H]
enum Dgrad {
  kDDy,
  kDH1,
  kDRstd2,
  kDXn2,
  kDUp,
  kDActGrad,
  kDXn2Grad,
  kDUpGrad,
  kDH1Grad,
};
enum Wgrad { kWXn2, kWUpGrad, kWAct, kWDy };
enum Params { kNorm2, kUpW, kDownW };
enum DgradGrads { kGNorm2 };
enum WgradGrads { kGUp, kGDown };
}  // namespace mlp

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
// read logits, labels, lse; write d_logits [T,V]
enum Dgrad { kDLogits, kDLabels, kDLse, kDLogitsGrad };
}  // namespace loss

}  // namespace weft::model

#endif  // WEFT_MODEL_DECODER_H_
