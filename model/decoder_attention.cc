// The attention block of a decoder layer.
#include <algorithm>
#include <utility>
#include <vector>

#include "model/decoder.h"
#include "model/decoder_builder.h"

namespace weft::model {

// Scratch of causal attention in floats: a few square blocks of scores and a
// head's worth of rows. The executor checks it against what the op asks for.
int64_t DecoderBuilder::AttentionScratch(int64_t sequence, int64_t head_dim) {
  constexpr int64_t kBlock = 128;
  return 4 * kBlock * std::max(kBlock, sequence) + 8 * sequence * head_dim;
}

double DecoderBuilder::ProjectionFlops() const {
  return 2.0 * s_.tokens * s_.hidden *
         (s_.qkv_columns() + s_.heads * s_.head_dim);
}

// Two products over the causal half of the scores.
double DecoderBuilder::ScoreFlops() const {
  return 2.0 * s_.tokens * s_.sequence * s_.heads * s_.head_dim;
}

std::vector<StepDecl> DecoderBuilder::AttentionSteps() const {
  namespace at = attention;
  const double of_column = 2.0 * s_.tokens * s_.hidden;
  StepDecl norm = {RecomputePart::kNorm, {at::kX}, {at::kRstd, at::kXn}};
  norm.params = {at::kNorm1};
  StepDecl project = {
      RecomputePart::kNone, {at::kXn}, {at::kQk, at::kQkRstd, at::kQkv}};
  project.params = {at::kQkvW, at::kQkvB, at::kQNorm, at::kKNorm};
  project.flops = of_column * s_.qkv_columns();
  StepDecl core = {
      RecomputePart::kAttentionCore, {at::kQkv}, {at::kAttnOut, at::kLse}};
  core.scratch = {at::kScratch};
  core.attention_flops = ScoreFlops();
  StepDecl out = {RecomputePart::kNone, {at::kX, at::kAttnOut}, {at::kY}};
  out.params = {at::kOutW, at::kOutB};
  out.flops = of_column * s_.heads * s_.head_dim;
  return {norm, project, core, out};
}

void DecoderBuilder::Attention() {
  const int64_t t = s_.tokens;
  const int64_t h = s_.hidden;
  const int64_t q = s_.qkv_columns();
  const int64_t width = s_.heads * s_.head_dim;
  const int norm1 = Norm("norm1");
  const int qkv_w = Param("qkv", {q, h}, s_.init_std);
  const int out_w = Param("out", {h, width}, ResidualStd());
  const int qkv_b = s_.qkv_bias ? Param("qkv_bias", {q}, 0) : kAbsent;
  const int out_b = s_.out_bias ? Param("out_bias", {h}, 0) : kAbsent;
  int q_norm = kAbsent, k_norm = kAbsent, qk = kAbsent, qk_rstd = kAbsent;
  if (s_.qk_norm) {
    q_norm = out_.Norm("q_norm", s_.head_dim);
    k_norm = out_.Norm("k_norm", s_.head_dim);
    qk = Activation("qk", t, s_.qk_heads() * s_.head_dim);
    qk_rstd = Value("qk_rstd", t, s_.qk_heads());
  }
  const int rstd = Value("rstd1", t, 1);
  const int xn = Activation("xn1", t, h);
  const int qkv = Activation("qkv", t, q);
  const int attn = Activation("attn", t, width);
  const int lse = Value("lse", t, s_.heads);
  const int qkv_grad = Activation("qkv.grad", t, q);
  const int64_t floats = AttentionScratch(s_.sequence, s_.head_dim);
  const int scratch = Value("attn_scratch", 1, floats);
  const int d_scratch = Value("attn_scratch.grad", 1, floats);
  const int rows_scratch = Activation("scratch.grad", t, std::max(h, width));

  const std::vector<int> params = {norm1, qkv_w,  out_w, qkv_b,
                                   out_b, q_norm, k_norm};
  PhaseDecl forward = Compute(Phase::kForward,
                              {R(x_), W(rstd), W(xn), W(qk), W(qk_rstd), W(qkv),
                               W(attn), W(lse), S(scratch), W(y_)},
                              params, {}, ProjectionFlops());
  PhaseDecl dgrad =
      Compute(Phase::kDgrad,
              {R(dy_), R(x_), R(rstd), R(xn), R(qk), R(qk_rstd), R(qkv),
               R(attn), R(lse), S(d_scratch), S(rows_scratch), W(qkv_grad),
               W(dx_), W(scaled_dy_)},
              params, {norm1, q_norm, k_norm}, ProjectionFlops());
  forward.attention_flops = ScoreFlops();
  dgrad.attention_flops = ScoreFlops();
  NodeDecl& node = out_.AddNode(NodeKind::kAttention);
  node.steps = AttentionSteps();
  node.phases = {
      std::move(forward), std::move(dgrad),
      Compute(Phase::kWgrad, {R(xn), R(qkv_grad), R(attn), R(BranchGrad())}, {},
              {qkv_w, out_w, qkv_b, out_b}, ProjectionFlops())};
}

}  // namespace weft::model
