#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "model/declaration_builder.h"

namespace weft::model {
namespace {

// Scratch of causal attention in floats: a few square blocks of scores and a
// head's worth of rows. The executor checks it against what the op asks for.
int64_t AttentionScratch(const Shape& s) {
  constexpr int64_t kBlock = 128;
  return 4 * kBlock * std::max(kBlock, s.sequence) +
         8 * s.sequence * s.head_dim;
}

using Args = std::vector<Arg>;

template <typename T>
void Append(std::vector<T>& to, std::initializer_list<T> items) {
  to.insert(to.end(), items);
}

// Declares the layers of a decoder, one after another.
class Builder {
 public:
  explicit Builder(const Shape& shape) : s_(shape) {}

  ModelDecl Build();

 private:
  // Activations of one decoder layer that several nodes use.
  struct Attention {
    int rstd1, xn1, qkv, attn, lse, h1, h1_grad, qkv_grad;
    int qk = kAbsent, qk_rstd = kAbsent;
    int norm1, qkv_w, out_w;
    int qkv_b = kAbsent, out_b = kAbsent, q_norm = kAbsent, k_norm = kAbsent;
  };
  // What the phases of a pre_dispatch node use, gathered part by part.
  struct PreDispatch {
    Args forward;
    Args dgrad;
    Args wgrad;
    std::vector<int> params;
    std::vector<int> dgrad_grads;
    std::vector<int> wgrad_grads;
    double flops = 0;        // of forward and of dgrad
    double wgrad_flops = 0;  // without what has no weights
  };
  struct Routing {
    int rstd2, xn2, scores, index, prob, counts, all, row_of_slot;
    int token_of_row, slot_of_row, sorted_rows, sorted_experts;
    int send_rows, send_prob;
    int send_rows_grad, send_prob_grad;
    int rows, row_prob, out, out_grad, rows_grad, row_prob_grad;
    int shared_gate_up = -1, shared_act = -1, shared_out = -1;
    int shared_gate_up_grad = -1;
    int shared_gate = kAbsent, shared_gate_grad = kAbsent;
  };

  int Param(const std::string& name, std::vector<int64_t> shape, double std) {
    return out_.Param(name, std::move(shape), std);
  }
  int Norm(const std::string& name) { return out_.Norm(name, s_.hidden); }
  int Value(const std::string& name, int64_t rows, int64_t columns,
            DType dtype = DType::kF32) {
    return out_.Value(name, rows, columns, dtype);
  }
  int Received(const std::string& name, int64_t columns) {
    return out_.Received(name, s_.max_received_rows(), columns);
  }

  void EmbeddingLayer();
  void DecoderLayer(int index);
  void HeadLayer();
  Attention DeclareAttention();
  Routing DeclareRouting();
  PreDispatch AttentionHalf(const Attention& a, Access h1_grad);
  void AddRouter(const Attention& a, const Routing& r, PreDispatch& p);
  void AddSharedExpert(const Routing& r, PreDispatch& p);
  void AddPreDispatch(const PreDispatch& p);
  void Counts(const Routing& r);
  void Dispatch(const Routing& r);
  void Experts(const Routing& r);
  void Combine(const Attention& a, const Routing& r);
  void Mlp(const Attention& a);
  double ProjectionFlops() const;
  double ScoreFlops() const;

  // Deviation of the matrices that write to the residual stream.
  double ResidualStd() const {
    return s_.init_std / std::sqrt(2.0 * s_.layers);
  }

  const Shape& s_;
  DeclarationBuilder out_;
  int table_ = -1;   // embedding table
  int tokens_ = -1;  // value
  int labels_ = -1;  // value
  int x_ = -1;       // output of the layer before, input of this one
  int y_ = -1;       // output of this layer
  int dx_ = -1;      // gradient of x_
  int dy_ = -1;      // gradient of y_
};

void Builder::EmbeddingLayer() {
  out_.BeginLayer(LayerKind::kEmbedding, "embedding");
  table_ = Param("table", {s_.vocab, s_.hidden}, s_.init_std);
  tokens_ = Value("tokens", s_.tokens, 1, DType::kI32);
  labels_ = Value("labels", s_.tokens, 1, DType::kI32);
  y_ = Value("y", s_.tokens, s_.hidden);
  dy_ = Value("dy", s_.tokens, s_.hidden);
  const int scratch =
      Value("scratch.grad", 1, 2 * s_.tokens + s_.vocab + 1, DType::kI32);

  out_.AddNode(NodeKind::kLoad).phases = {
      Compute(Phase::kForward, {W(tokens_), W(labels_)})};
  out_.AddNode(NodeKind::kEmbedding).phases = {
      Compute(Phase::kForward, {R(tokens_), W(y_)}, {table_}),
      Compute(Phase::kWgrad, {R(tokens_), R(dy_), S(scratch)}, {}, {table_}),
  };
}

double Builder::ProjectionFlops() const {
  return 2.0 * s_.tokens * s_.hidden *
         (s_.qkv_columns() + s_.heads * s_.head_dim);
}

// Two products over the causal half of the scores.
double Builder::ScoreFlops() const {
  return 2.0 * s_.tokens * s_.sequence * s_.heads * s_.head_dim;
}

Builder::Attention Builder::DeclareAttention() {
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
    a.qk = Value("qk", t, s_.qk_heads() * s_.head_dim);
    a.qk_rstd = Value("qk_rstd", t, s_.qk_heads());
  }
  a.rstd1 = Value("rstd1", t, 1);
  a.xn1 = Value("xn1", t, h);
  a.qkv = Value("qkv", t, q);
  a.attn = Value("attn", t, out);
  a.lse = Value("lse", t, s_.heads);
  a.h1 = Value("h1", t, h);
  a.h1_grad = Value("h1.grad", t, h);
  a.qkv_grad = Value("qkv.grad", t, q);
  return a;
}

Builder::Routing Builder::DeclareRouting() {
  const int64_t t = s_.tokens;
  const int64_t h = s_.hidden;
  const int64_t k = s_.top_k;
  const int64_t n = s_.sent_rows();
  Routing r;
  r.rstd2 = Value("rstd2", t, 1);
  r.xn2 = Value("xn2", t, h);
  r.scores = Value("scores", t, s_.experts);
  r.index = Value("topk_index", t, k, DType::kI32);
  r.prob = Value("topk_prob", t, k);
  r.counts = Value("counts", 1, s_.experts, DType::kI32);
  r.all = out_.HostValue("counts_all", s_.ep, s_.experts, DType::kI32);
  r.row_of_slot = Value("row_of_slot", t, k, DType::kI32);
  r.token_of_row = Value("token_of_row", n, 1, DType::kI32);
  r.slot_of_row = Value("slot_of_row", n, 1, DType::kI32);
  r.sorted_rows = Value("sorted_rows", t, k, DType::kI32);
  r.sorted_experts = Value("sorted_experts", t, k, DType::kI32);
  r.send_rows = Value("send_rows", n, h);
  r.send_prob = Value("send_prob", n, 1);
  r.send_rows_grad = Value("send_rows.grad", n, h);
  r.send_prob_grad = Value("send_prob.grad", n, 1);
  r.rows = Received("rows", h);
  r.row_prob = Received("row_prob", 1);
  r.out = Received("expert_out", h);
  r.out_grad = Received("expert_out.grad", h);
  r.rows_grad = Received("rows.grad", h);
  r.row_prob_grad = Received("row_prob.grad", 1);
  if (s_.shared_ffn > 0) {
    r.shared_gate_up = Value("shared_gate_up", t, 2 * s_.shared_ffn);
    r.shared_act = Value("shared_act", t, s_.shared_ffn);
    r.shared_out = Value("shared_out", t, h);
    r.shared_gate_up_grad = Value("shared_gate_up.grad", t, 2 * s_.shared_ffn);
    if (s_.shared_gate) {
      r.shared_gate = Value("shared_gate", t, 1);
      r.shared_gate_grad = Value("shared_gate.grad", t, 1);
    }
  }
  return r;
}

// What a decoder layer's attention half does in each phase. `h1_grad` is how
// dgrad uses the gradient of h1.
Builder::PreDispatch Builder::AttentionHalf(const Attention& a,
                                            Access h1_grad) {
  const int scratch = Value("attn_scratch", 1, AttentionScratch(s_));
  const int d_scratch = Value("attn_scratch.grad", 1, AttentionScratch(s_));
  const int rows_scratch = Value("scratch.grad", s_.tokens,
                                 std::max(s_.hidden, s_.heads * s_.head_dim));
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
  p.flops = ProjectionFlops() + ScoreFlops();
  p.wgrad_flops = ProjectionFlops();
  return p;
}

void Builder::AddRouter(const Attention& a, const Routing& r, PreDispatch& p) {
  const int64_t t = s_.tokens;
  const int norm2 = Norm("norm2");
  const int router = Param("router", {s_.experts, s_.hidden}, s_.init_std);
  const int logits = Value("logits", t, s_.experts);
  const int offsets = Value("offsets", 1, s_.experts + 1, DType::kI64);
  const int xn2_grad = Value("xn2.grad", t, s_.hidden);
  const int logits_grad = Value("logits.grad", t, s_.experts);
  const int prob_grad = Value("topk_prob.grad", t, s_.top_k);
  Append(p.forward, {W(r.rstd2), W(r.xn2), S(logits), W(r.scores), W(r.index),
                     W(r.prob), W(r.counts), S(offsets), W(r.row_of_slot),
                     W(r.token_of_row), W(r.slot_of_row), W(r.sorted_rows),
                     W(r.sorted_experts), W(r.send_rows), W(r.send_prob)});
  Append(p.dgrad,
         {R(a.h1), R(r.rstd2), R(r.xn2), R(r.scores), R(r.index), R(r.prob),
          R(r.row_of_slot), R(r.sorted_rows), R(r.sorted_experts),
          R(r.send_rows_grad), R(r.send_prob_grad), S(xn2_grad), S(logits_grad),
          S(prob_grad)});
  Append(p.params, {norm2, router});
  Append(p.dgrad_grads, {norm2, router});
  p.flops += 2.0 * t * s_.hidden * s_.experts;
}

void Builder::AddSharedExpert(const Routing& r, PreDispatch& p) {
  const int gate_up =
      Param("shared_gate_up", {2 * s_.shared_ffn, s_.hidden}, s_.init_std);
  const int down =
      Param("shared_down", {s_.hidden, s_.shared_ffn}, ResidualStd());
  const int act_grad = Value("shared_act.grad", s_.tokens, s_.shared_ffn);
  const int gate = s_.shared_gate
                       ? Param("shared_gate", {1, s_.hidden}, s_.init_std)
                       : kAbsent;
  Append(p.forward, {W(r.shared_gate_up), W(r.shared_act), W(r.shared_out),
                     W(r.shared_gate)});
  Append(p.dgrad, {R(r.shared_gate_up), S(act_grad), W(r.shared_gate_up_grad),
                   R(r.shared_gate), W(r.shared_gate_grad)});
  Append(p.wgrad, {R(r.xn2), R(r.shared_gate_up_grad), R(r.shared_act), R(dy_),
                   R(r.shared_gate_grad)});
  Append(p.params, {gate_up, down, gate});
  Append(p.wgrad_grads, {gate_up, down, gate});
  const double flops = 6.0 * s_.tokens * s_.hidden * s_.shared_ffn;
  p.flops += flops;
  p.wgrad_flops += flops;
}

void Builder::AddPreDispatch(const PreDispatch& p) {
  out_.AddNode(NodeKind::kPreDispatch).phases = {
      Compute(Phase::kForward, p.forward, p.params, {}, p.flops),
      Compute(Phase::kDgrad, p.dgrad, p.params, p.dgrad_grads, p.flops),
      Compute(Phase::kWgrad, p.wgrad, {}, p.wgrad_grads, p.wgrad_flops),
  };
}

void Builder::Counts(const Routing& r) {
  NodeDecl& node = out_.AddNode(NodeKind::kCounts);
  node.phases = {Exchange(Phase::kForward, {R(r.counts), W(r.all)})};
  node.host_wait_after = true;
}

void Builder::Dispatch(const Routing& r) {
  out_.AddNode(NodeKind::kDispatch).phases = {
      Exchange(Phase::kForward, {R(r.send_rows), R(r.send_prob), R(r.all),
                                 W(r.rows), W(r.row_prob)}),
      Exchange(Phase::kDgrad, {R(r.rows_grad), R(r.row_prob_grad), R(r.all),
                               W(r.send_rows_grad), W(r.send_prob_grad)}),
  };
}

void Builder::Experts(const Routing& r) {
  const int64_t f = s_.expert_ffn;
  const int gate_up_w = out_.ExpertParam(
      "experts.gate_up", {s_.experts, 2 * f, s_.hidden}, s_.init_std, s_.ep);
  const int down_w = out_.ExpertParam(
      "experts.down", {s_.experts, s_.hidden, f}, ResidualStd(), s_.ep);
  const int gate_up = Received("gate_up", 2 * f);
  const int act = Received("act", f);
  const int act_grad = Received("act.grad", f);
  const int gate_up_grad = Received("gate_up.grad", 2 * f);
  const double flops = 6.0 * s_.sent_rows() * s_.hidden * f;
  out_.AddNode(NodeKind::kExperts).phases = {
      Compute(
          Phase::kForward,
          {R(r.rows), R(r.row_prob), R(r.all), W(gate_up), W(act), W(r.out)},
          {gate_up_w, down_w}, {}, flops),
      Compute(Phase::kDgrad,
              {R(r.out_grad), R(gate_up), R(r.row_prob), R(r.all), S(act_grad),
               W(gate_up_grad), W(r.rows_grad), W(r.row_prob_grad)},
              {gate_up_w, down_w}, {}, flops),
      Compute(Phase::kWgrad,
              {R(r.rows), R(act), R(gate_up_grad), R(r.out_grad), R(r.all)}, {},
              {gate_up_w, down_w}, flops),
  };
}

void Builder::Combine(const Attention& a, const Routing& r) {
  const int back = Value("combine_back", s_.sent_rows(), s_.hidden);
  const int d_back = Value("combine_back.grad", s_.sent_rows(), s_.hidden);
  Args forward = {
      R(r.out), R(r.all), R(a.h1), R(r.sorted_rows), R(r.sorted_experts),
      S(back),  W(y_)};
  if (s_.shared_ffn > 0) forward.push_back(R(r.shared_out));
  out_.AddNode(NodeKind::kCombine).phases = {
      Exchange(Phase::kForward, forward),
      Exchange(Phase::kDgrad,
               {R(dy_), R(r.all), R(r.token_of_row), S(d_back), W(r.out_grad)}),
  };
}

void Builder::Mlp(const Attention& a) {
  const int64_t t = s_.tokens;
  const int64_t h = s_.hidden;
  const int64_t f = s_.ffn;
  const int norm2 = Norm("norm2");
  const int gate_up_w = Param("mlp.gate_up", {2 * f, h}, s_.init_std);
  const int down_w = Param("mlp.down", {h, f}, ResidualStd());
  const int rstd2 = Value("rstd2", t, 1);
  const int xn2 = Value("xn2", t, h);
  const int gate_up = Value("gate_up", t, 2 * f);
  const int act = Value("act", t, f);
  const int act_grad = Value("act.grad", t, f);
  const int xn2_grad = Value("xn2.grad", t, h);
  const int gate_up_grad = Value("gate_up.grad", t, 2 * f);
  const std::vector<int> params = {norm2, gate_up_w, down_w};
  const double flops = 6.0 * t * h * f;
  out_.AddNode(NodeKind::kMlp).phases = {
      Compute(Phase::kForward,
              {R(a.h1), W(rstd2), W(xn2), W(gate_up), W(act), W(y_)}, params,
              {}, flops),
      Compute(Phase::kDgrad,
              {R(dy_), R(a.h1), R(rstd2), R(xn2), R(gate_up), S(act_grad),
               S(xn2_grad), W(gate_up_grad), W(a.h1_grad)},
              params, {norm2}, flops),
      Compute(Phase::kWgrad, {R(xn2), R(gate_up_grad), R(act), R(dy_)}, {},
              {gate_up_w, down_w}, flops),
  };
}

void Builder::DecoderLayer(int index) {
  out_.BeginLayer(LayerKind::kDecoder, "layers." + std::to_string(index)).moe =
      s_.moe_layer[index];
  x_ = y_;
  dx_ = dy_;
  y_ = Value("y", s_.tokens, s_.hidden);
  dy_ = Value("dy", s_.tokens, s_.hidden);
  const Attention a = DeclareAttention();
  if (!s_.moe_layer[index]) {
    AddPreDispatch(AttentionHalf(a, Access::kRead));
    Mlp(a);
    return;
  }
  const Routing r = DeclareRouting();
  PreDispatch pre_dispatch = AttentionHalf(a, Access::kWrite);
  AddRouter(a, r, pre_dispatch);
  if (s_.shared_ffn > 0) AddSharedExpert(r, pre_dispatch);
  AddPreDispatch(pre_dispatch);
  Counts(r);
  Dispatch(r);
  Experts(r);
  Combine(a, r);
}

void Builder::HeadLayer() {
  out_.BeginLayer(LayerKind::kHead, "head");
  const int64_t t = s_.tokens;
  const int64_t h = s_.hidden;
  const int norm = Norm("norm");
  const int output =
      s_.tie_embeddings ? table_ : Param("output", {s_.vocab, h}, s_.init_std);
  const int rstd = Value("rstd", t, 1);
  const int xn = Value("xn", t, h);
  const int logits = Value("logits", t, s_.vocab);
  const int lse = Value("lse", t, 1);
  const int logits_grad = Value("logits.grad", t, s_.vocab);
  const int xn_grad = Value("xn.grad", t, h);
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
      Compute(Phase::kDgrad, {R(logits), R(labels_), R(lse), W(logits_grad)}),
  };
}

ModelDecl Builder::Build() {
  EmbeddingLayer();
  for (int i = 0; i < s_.layers; ++i) DecoderLayer(i);
  HeadLayer();
  return out_.Take(s_.tokens);
}

}  // namespace

ModelDecl DeclareDecoder(const Shape& shape) { return Builder(shape).Build(); }

}  // namespace weft::model
