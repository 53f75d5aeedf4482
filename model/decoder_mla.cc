// The block of multi-head latent attention of a decoder layer.
#include <algorithm>
#include <utility>
#include <vector>

#include "model/decoder.h"
#include "model/decoder_builder.h"

namespace weft::model {

DecoderBuilder::MlaParams DecoderBuilder::DeclareMlaParams() {
  const MlaShape& m = s_.mla;
  const int64_t h = s_.hidden;
  const int64_t q_width = s_.heads * m.qk_dim();
  const int64_t kv_width = s_.heads * (m.plain_dim + m.v_dim);
  MlaParams p;
  p.norm1 = Norm("norm1");
  if (m.q_rank > 0) {
    p.q_down = Param("q_down", {m.q_rank, h}, s_.init_std);
    p.q_norm = out_.Norm("q_norm", m.q_rank);
    p.q = Param("q_up", {q_width, m.q_rank}, s_.init_std);
  } else {
    p.q = Param("q_proj", {q_width, h}, s_.init_std);
  }
  p.kv_down = Param("kv_down", {m.kv_rank + m.rope_dim, h}, s_.init_std);
  p.kv_norm = out_.Norm("kv_norm", m.kv_rank);
  p.kv_up = Param("kv_up", {kv_width, m.kv_rank}, s_.init_std);
  p.out = Param("out", {h, s_.heads * m.v_dim}, ResidualStd());
  return p;
}

DecoderBuilder::MlaValues DecoderBuilder::DeclareMlaValues() {
  const MlaShape& m = s_.mla;
  const int64_t t = s_.tokens;
  MlaValues v;
  v.rstd = Value("rstd1", t, 1);
  v.xn = Activation("xn1", t, s_.hidden);
  if (m.q_rank > 0) {
    v.q_latent = Activation("q_latent", t, m.q_rank);
    v.q_rstd = Value("q_rstd", t, 1);
    v.q_normed = Activation("q_normed", t, m.q_rank);
    v.q_latent_grad = Activation("q_latent.grad", t, m.q_rank);
  }
  v.kv_latent = Activation("kv_latent", t, m.kv_rank);
  v.kv_rstd = Value("kv_rstd", t, 1);
  v.kv_normed = Activation("kv_normed", t, m.kv_rank);
  v.qkv = Activation("qkv", t, s_.mla_qkv_columns());
  v.attn = Activation("attn", t, s_.heads * m.v_dim);
  v.lse = Value("lse", t, s_.heads);
  v.k_rope = Activation("k_rope", t, m.rope_dim);
  v.q_grad = Activation("q.grad", t, s_.heads * m.qk_dim());
  v.kv_grad = Activation("kv.grad", t, s_.heads * (m.plain_dim + m.v_dim));
  v.kv_latent_grad = Activation("kv_latent.grad", t, m.kv_rank);
  v.k_rope_grad = Activation("k_rope.grad", t, m.rope_dim);
  return v;
}

PhaseDecl DecoderBuilder::MlaForward(const MlaValues& v,
                                     const std::vector<int>& params) {
  const MlaShape& m = s_.mla;
  const int64_t t = s_.tokens;
  const int q = Activation("q", t, s_.heads * m.qk_dim());
  const int kv = Activation("kv", t, s_.heads * (m.plain_dim + m.v_dim));
  const int scratch =
      Value("attn_scratch", 1,
            AttentionScratch(s_.sequence, std::max(m.qk_dim(), m.v_dim)));
  return Compute(
      Phase::kForward,
      {R(x_), W(v.rstd), W(v.xn), W(v.q_latent), W(v.q_rstd), W(v.q_normed),
       S(q), W(v.kv_latent), W(v.kv_rstd), W(v.kv_normed), W(v.k_rope), S(kv),
       W(v.qkv), W(v.attn), W(v.lse), S(scratch), W(y_)},
      params, {}, 2.0 * t * s_.mla_weights());
}

PhaseDecl DecoderBuilder::MlaDgrad(const MlaValues& v,
                                   const std::vector<int>& params,
                                   const std::vector<int>& grads) {
  const MlaShape& m = s_.mla;
  const int64_t t = s_.tokens;
  const int scratch =
      Value("attn_scratch.grad", 1,
            AttentionScratch(s_.sequence, std::max(m.qk_dim(), m.v_dim)));
  const int rows =
      Activation("scratch.grad", t, std::max(s_.hidden, s_.heads * m.v_dim));
  const int latent =
      Activation("latent_scratch.grad", t, std::max(m.q_rank, m.kv_rank));
  const int qkv_grad = Activation("qkv.grad", t, s_.mla_qkv_columns());
  return Compute(Phase::kDgrad, {R(dy_),           R(x_),
                                 R(v.rstd),        R(v.q_latent),
                                 R(v.q_rstd),      R(v.kv_latent),
                                 R(v.kv_rstd),     R(v.qkv),
                                 R(v.attn),        R(v.lse),
                                 S(scratch),       S(rows),
                                 S(latent),        S(qkv_grad),
                                 W(v.q_grad),      W(v.q_latent_grad),
                                 W(v.kv_grad),     W(v.kv_latent_grad),
                                 W(v.k_rope_grad), W(dx_),
                                 W(scaled_dy_)},
                 params, grads, 2.0 * t * s_.mla_weights());
}

// Two products over the causal half of the scores.
double DecoderBuilder::MlaScoreFlops() const {
  return 1.0 * s_.tokens * s_.sequence * s_.heads *
         (s_.mla.qk_dim() + s_.mla.v_dim);
}

std::vector<StepDecl> DecoderBuilder::MlaSteps() const {
  namespace args = mla;
  const MlaShape& m = s_.mla;
  const double down = s_.hidden * (m.q_rank + m.kv_rank + m.rope_dim);
  const double out_weights = s_.hidden * s_.heads * m.v_dim;
  StepDecl norm = {RecomputePart::kNorm, {args::kX}, {args::kRstd, args::kXn}};
  norm.params = {args::kNorm1};
  StepDecl latents = {RecomputePart::kNone,
                      {args::kXn},
                      {args::kQLatent, args::kKvLatent, args::kKRope}};
  latents.params = {args::kQDownW, args::kKvDownW};
  latents.flops = 2.0 * s_.tokens * down;
  StepDecl up = {RecomputePart::kMlaUpProjection,
                 {m.q_rank > 0 ? args::kQLatent : args::kXn, args::kKvLatent,
                  args::kKRope},
                 {args::kQRstd, args::kQNormed, args::kKvRstd, args::kKvNormed,
                  args::kQkv}};
  up.scratch = {args::kQ, args::kKv};
  up.params = {args::kQNorm, args::kQW, args::kKvNorm, args::kKvUpW};
  up.flops = 2.0 * s_.tokens * (s_.mla_weights() - down - out_weights);
  StepDecl core = {RecomputePart::kAttentionCore,
                   {args::kQkv},
                   {args::kAttnOut, args::kLse}};
  core.scratch = {args::kAttnScratch};
  core.attention_flops = MlaScoreFlops();
  StepDecl out = {RecomputePart::kNone, {args::kX, args::kAttnOut}, {args::kY}};
  out.params = {args::kOutW};
  out.flops = 2.0 * s_.tokens * out_weights;
  return {norm, latents, up, core, out};
}

void DecoderBuilder::LatentAttention() {
  const MlaParams p = DeclareMlaParams();
  const MlaValues v = DeclareMlaValues();
  const std::vector<int> params = {p.norm1,   p.q_down,  p.q_norm, p.q,
                                   p.kv_down, p.kv_norm, p.kv_up,  p.out};
  PhaseDecl forward = MlaForward(v, params);
  PhaseDecl dgrad = MlaDgrad(v, params, {p.norm1, p.q_norm, p.kv_norm});
  forward.attention_flops = MlaScoreFlops();
  dgrad.attention_flops = forward.attention_flops;
  PhaseDecl wgrad =
      Compute(Phase::kWgrad,
              {R(v.xn), R(v.q_normed), R(v.q_grad), R(v.q_latent_grad),
               R(v.kv_normed), R(v.kv_grad), R(v.kv_latent_grad),
               R(v.k_rope_grad), R(v.attn), R(BranchGrad())},
              {}, {p.q_down, p.q, p.kv_down, p.kv_up, p.out},
              2.0 * s_.tokens * s_.mla_weights());
  NodeDecl& node = out_.AddNode(NodeKind::kMla);
  node.phases = {std::move(forward), std::move(dgrad), std::move(wgrad)};
  node.steps = MlaSteps();
}

}  // namespace weft::model
