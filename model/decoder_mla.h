// Numbers of the args, params and grads of latent attention; see
// model/decoder.h, which includes this.
#ifndef WEFT_MODEL_DECODER_MLA_H_
#define WEFT_MODEL_DECODER_MLA_H_

namespace weft::model {

// Multi-head latent attention, as the blocks of model/decoder.h. [n] heads; of
// the widths of model/shape.h: [P] plain, [r] rope, [v] values, [Lq] and [L]
// latents of queries and of keys and values. What queries' latent has is absent
// without it.
namespace mla {
enum Forward {
  kX,            // read  x [T,H]
  kRstd,         // write [T]
  kXn,           // write [T,H] norm1(x)
  kQLatent,      // write [T,Lq]
  kQRstd,        // write [T]
  kQNormed,      // write [T,Lq] q_norm(latent)
  kQ,            // scratch [T,n(P+r)]
  kKvLatent,     // write [T,L]
  kKvRstd,       // write [T]
  kKvNormed,     // write [T,L] kv_norm(latent)
  kKRope,        // write [T,r]
  kKv,           // scratch [T,n(P+v)]
  kQkv,          // write [T,n(2(P+r)+v)] after rotary
  kAttnOut,      // write [T,nv]
  kLse,          // write [T,n]
  kAttnScratch,  // scratch, see ops::AttentionForwardScratchElements
  kY,            // write [T,H] x + residual_multiplier * out(attn)
};
enum Step { kNormStep, kLatentStep, kUpStep, kCoreStep, kOutStep };
enum Dgrad {
  kDDy,             // read [T,H]
  kDX,              // read x
  kDRstd,           // read
  kDQLatent,        // read
  kDQRstd,          // read
  kDKvLatent,       // read
  kDKvRstd,         // read
  kDQkv,            // read
  kDAttnOut,        // read
  kDLse,            // read
  kDAttnScratch,    // scratch
  kDScratch,        // scratch [T,max(H,nv)]
  kDLatentScratch,  // scratch [T,max(Lq,L)]
  kDQkvGrad,        // scratch [T,n(2(P+r)+v)]
  kDQGrad,          // write [T,n(P+r)]
  kDQLatentGrad,    // write [T,Lq]
  kDKvGrad,         // write [T,n(P+v)]
  kDKvLatentGrad,   // write [T,L]
  kDKRopeGrad,      // write [T,r]
  kDDx,             // write [T,H]
  kDBranchGrad,     // write [T,H]; with a residual_multiplier only
};
enum Wgrad {
  kWXn,  // read, like all
  kWQNormed,
  kWQGrad,
  kWQLatentGrad,
  kWKvNormed,
  kWKvGrad,
  kWKvLatentGrad,
  kWKRopeGrad,
  kWAttnOut,
  kWBranchGrad,
};
// Read by forward and by dgrad.
enum Params {
  kNorm1,    // [H]
  kQDownW,   // [Lq,H]
  kQNorm,    // [Lq]
  kQW,       // q_up [n(P+r),Lq]; without a latent q_proj [n(P+r),H]
  kKvDownW,  // [L+r,H] rows of the latent, then of the shared key part
  kKvNorm,   // [L]
  kKvUpW,    // [n(P+v),L]
  kOutW,     // [H,nv]
};
enum DgradGrads { kGNorm1, kGQNorm, kGKvNorm };
enum WgradGrads { kGQDown, kGQ, kGKvDown, kGKvUp, kGOut };
}  // namespace mla

}  // namespace weft::model

#endif  // WEFT_MODEL_DECODER_MLA_H_
