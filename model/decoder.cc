#include "model/decoder.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/decoder_builder.h"

namespace weft::model {
namespace {

// Scratch of causal attention in floats: a few square blocks of scores and a
// head's worth of rows. The executor checks it against what the op asks for.
int64_t AttentionScratch(const Shape& s) {
  constexpr int64_t kBlock = 128;
  return 4 * kBlock * std::max(kBlock, s.sequence) +
         8 * s.sequence * s.head_dim;
}

}  // namespace

void DecoderBuilder::EmbeddingLayer() {
  out_.BeginLayer(LayerKind::kEmbedding, "embedding");
  table_ = Param("table", {s_.vocab, s_.hidden}, s_.init_std);
  tokens_ = Value("tokens", s_.tokens, 1, DType::kI32);
  labels_ = Value("labels", s_.tokens, 1, DType::kI32);
  y_ = Activation("y", s_.tokens, s_.hidden);
  dy_ = Activation("dy", s_.tokens, s_.hidden);
  const int scratch =
      Value("scratch.grad", 2 * s_.tokens + s_.vocab + 1, 1, DType::kI32);

  out_.AddNode(NodeKind::kLoad).phases = {
      Compute(Phase::kForward, {W(tokens_), W(labels_)})};
  if (s_.loss_mask) {
    const int gathered = Value("loss_tokens", s_.world, 2, DType::kF64);
    loss_weights_ = Value("loss_weights", 1, 2);
    out_.AddNode(NodeKind::kLossWeights).phases = {
        ExchangeWithAll(Phase::kForward, {S(gathered), W(loss_weights_)})};
  }
  out_.AddNode(NodeKind::kEmbedding).phases = {
      Compute(Phase::kForward, {R(tokens_), W(y_)}, {table_}),
      Compute(Phase::kWgrad, {R(tokens_), R(dy_), S(scratch)}, {}, {table_}),
  };
}

double DecoderBuilder::ProjectionFlops() const {
  return 2.0 * s_.tokens * s_.hidden *
         (s_.qkv_columns() + s_.heads * s_.head_dim);
}

// Two products over the causal half of the scores.
double DecoderBuilder::ScoreFlops() const {
  return 2.0 * s_.tokens * s_.sequence * s_.heads * s_.head_dim;
}

DecoderBuilder::Attention DecoderBuilder::DeclareAttention() {
  const int64_t t = s_.tokens;
  const int64_t h = s_.hidden;
  const int64_t q = s_.qkv_columns();
  const int64_t out = s_.heads * s_.head_dim;
  Attention a;
  a.norm1 = Norm("norm1");
  a.qkv_w = Param("qkv", {q, h}, s_.init_std);
  a.out_w = Param("out", {h, out}, ResidualStd());
  if (s_.qkv_bias) a.qkv_b = Param("qkv_bias", {q}, 0);
  if (s_.out_bias) a.out_b = Param("out_bias", {h}, 0);
  if (s_.qk_norm) {
    a.q_norm = out_.Norm("q_norm", s_.head_dim);
    a.k_norm = out_.Norm("k_norm", s_.head_dim);
    a.qk = Activation("qk", t, s_.qk_heads() * s_.head_dim);
    a.qk_rstd = Value("qk_rstd", t, s_.qk_heads());
  }
  a.rstd1 = Value("rstd1", t, 1);
  a.xn1 = Activation("xn1", t, h);
  a.qkv = Activation("qkv", t, q);
  a.attn = Activation("attn", t, out);
  a.lse = Value("lse", t, s_.heads);
  a.h1 = Activation("h1", t, h);
  a.h1_grad = Activation("h1.grad", t, h);
  a.qkv_grad = Activation("qkv.grad", t, q);
  return a;
}

// What a decoder layer's attention half does in each phase. `h1_grad` is how
// dgrad uses the gradient of h1.
DecoderBuilder::PreDispatch DecoderBuilder::AttentionHalf(const Attention& a,
                                                          Access h1_grad) {
  const int scratch = Value("attn_scratch", 1, AttentionScratch(s_));
  const int d_scratch = Value("attn_scratch.grad", 1, AttentionScratch(s_));
  const int rows_scratch = Activation(
      "scratch.grad", s_.tokens, std::max(s_.hidden, s_.heads * s_.head_dim));
  PreDispatch p;
  p.forward = {R(x_),    W(a.rstd1), W(a.xn1), W(a.qk),    W(a.qk_rstd),
               W(a.qkv), W(a.attn),  W(a.lse), S(scratch), W(a.h1)};
  p.dgrad = {R(dy_),        R(x_),        R(a.rstd1),      R(a.xn1),
             R(a.qk),       R(a.qk_rstd), R(a.qkv),        R(a.attn),
             R(a.lse),      S(d_scratch), S(rows_scratch), {a.h1_grad, h1_grad},
             W(a.qkv_grad), W(dx_)};
  p.wgrad = {R(a.xn1), R(a.qkv_grad), R(a.attn), R(a.h1_grad)};
  p.params = {a.norm1, a.qkv_w, a.out_w, a.qkv_b, a.out_b, a.q_norm, a.k_norm};
  p.dgrad_grads = {a.norm1, a.q_norm, a.k_norm};
  p.wgrad_grads = {a.qkv_w, a.out_w, a.qkv_b, a.out_b};
  p.flops = ProjectionFlops();
  p.wgrad_flops = ProjectionFlops();
  return p;
}

void DecoderBuilder::AddPreDispatch(const PreDispatch& p) {
  PhaseDecl forward =
      Compute(Phase::kForward, p.forward, p.params, {}, p.flops);
  PhaseDecl dgrad =
      Compute(Phase::kDgrad, p.dgrad, p.params, p.dgrad_grads, p.flops);
  forward.attention_flops = ScoreFlops();
  dgrad.attention_flops = ScoreFlops();
  out_.AddNode(NodeKind::kPreDispatch).phases = {
      std::move(forward), std::move(dgrad),
      Compute(Phase::kWgrad, p.wgrad, {}, p.wgrad_grads, p.wgrad_flops)};
}

void DecoderBuilder::Mlp(const Attention& a) {
  const int64_t t = s_.tokens;
  const int64_t h = s_.hidden;
  const int64_t f = s_.ffn;
  const int norm2 = Norm("norm2");
  const int64_t columns = s_.up_columns(f);
  const int up_w = Param(Up("mlp."), {columns, h}, s_.init_std);
  const int down_w = Param("mlp.down", {h, f}, ResidualStd());
  const int rstd2 = Value("rstd2", t, 1);
  const int xn2 = Activation("xn2", t, h);
  const int up = Activation(Up(""), t, columns);
  const int act = Activation("act", t, f);
  const int act_grad = Activation("act.grad", t, f);
  const int xn2_grad = Activation("xn2.grad", t, h);
  const int up_grad = Activation(Up("") + ".grad", t, columns);
  const std::vector<int> params = {norm2, up_w, down_w};
  const double flops = FeedForwardFlops(t, f);
  out_.AddNode(NodeKind::kMlp).phases = {
      Compute(Phase::kForward,
              {R(a.h1), W(rstd2), W(xn2), W(up), W(act), W(y_)}, params, {},
              flops),
      Compute(Phase::kDgrad,
              {R(dy_), R(a.h1), R(rstd2), R(xn2), R(up), S(act_grad),
               S(xn2_grad), W(up_grad), W(a.h1_grad)},
              params, {norm2}, flops),
      Compute(Phase::kWgrad, {R(xn2), R(up_grad), R(act), R(dy_)}, {},
              {up_w, down_w}, flops),
  };
}

void DecoderBuilder::DecoderLayer(int index) {
  out_.BeginLayer(LayerKind::kDecoder, "layers." + std::to_string(index)).moe =
      s_.moe_layer[index];
  x_ = y_;
  dx_ = dy_;
  y_ = Activation("y", s_.tokens, s_.hidden);
  dy_ = Activation("dy", s_.tokens, s_.hidden);
  const Attention a = DeclareAttention();
  if (!s_.moe_layer[index]) {
    AddPreDispatch(AttentionHalf(a, Access::kRead));
    Mlp(a);
    return;
  }
  Routing r = DeclareRouting();
  DeclareRouterLosses(r);
  PreDispatch pre_dispatch = AttentionHalf(a, Access::kWrite);
  AddRouter(a, r, pre_dispatch);
  AddRouterLosses(r, pre_dispatch);
  if (s_.shared_ffn > 0) AddSharedExpert(r, pre_dispatch);
  AddPreDispatch(pre_dispatch);
  Counts(r);
  Dispatch(r);
  if (s_.router_loss.need_counts()) Balance(r);
  Experts(r);
  Combine(a, r);
}

void DecoderBuilder::HeadLayer() {
  out_.BeginLayer(LayerKind::kHead, "head");
  const int64_t t = s_.tokens;
  const int64_t h = s_.hidden;
  const int norm = Norm("norm");
  const int output =
      s_.tie_embeddings ? table_ : Param("output", {s_.vocab, h}, s_.init_std);
  const int rstd = Value("rstd", t, 1);
  const int xn = Activation("xn", t, h);
  const int logits = Activation("logits", t, s_.vocab);
  const int lse = Value("lse", t, 1);
  const int logits_grad = Activation("logits.grad", t, s_.vocab);
  const int xn_grad = Activation("xn.grad", t, h);
  const int loss = Value("loss", 1, 1, DType::kF64);
  out_.SetLoss(loss);
  const std::vector<int> params = {norm, output};
  const double flops = 2.0 * t * h * s_.vocab;
  out_.AddNode(NodeKind::kHead).phases = {
      Compute(Phase::kForward, {R(y_), W(rstd), W(xn), W(logits)}, params, {},
              flops),
      Compute(Phase::kDgrad,
              {R(logits_grad), R(y_), R(rstd), R(xn), S(xn_grad), W(dy_)},
              params, {norm}, flops),
      Compute(Phase::kWgrad, {R(logits_grad), R(xn)}, {}, {output}, flops),
  };
  out_.AddNode(NodeKind::kLoss).phases = {
      Compute(Phase::kForward, {R(logits), R(labels_), W(lse), W(loss)}),
      Compute(Phase::kDgrad, {R(logits), R(labels_), R(lse), W(logits_grad),
                              R(loss_weights_)}),
  };
}

ModelDecl DecoderBuilder::Build() {
  EmbeddingLayer();
  for (int i = 0; i < s_.layers; ++i) DecoderLayer(i);
  HeadLayer();
  return out_.Take(s_.tokens);
}

ModelDecl DeclareDecoder(const Shape& shape) {
  ModelDecl model = DecoderBuilder(shape).Build();
  if (shape.uneven.empty()) return model;
  std::map<int64_t, std::shared_ptr<const std::vector<int64_t>>> by_size;
  for (int m = 0; m < shape.microbatches; ++m) {
    auto& rows = by_size[shape.sequences_of(m)];
    if (rows == nullptr) {
      std::vector<int64_t> all;
      const Shape one = shape.Of(m);
      for (const ValueDecl& value : DecoderBuilder(one).Build().values) {
        all.push_back(value.max_rows);
      }
      rows = std::make_shared<const std::vector<int64_t>>(std::move(all));
    }
    model.rows.push_back(rows);
  }
  return model;
}

}  // namespace weft::model
