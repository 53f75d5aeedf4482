// The experts block of a decoder layer.
#include <vector>

#include "model/decoder_builder.h"

namespace weft::model {

DecoderBuilder::Routing DecoderBuilder::DeclareRouting() {
  const int64_t t = s_.tokens;
  const int64_t h = s_.hidden;
  const int64_t k = s_.top_k;
  const int64_t n = s_.sent_rows();
  Routing r;
  r.rstd2 = Value("rstd2", t, 1);
  r.xn2 = Activation("xn2", t, h);
  r.logits = Value("logits", t, s_.experts);
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
  r.send_rows = Activation("send_rows", n, h);
  r.send_prob = Value("send_prob", n, 1);
  r.send_rows_grad = Activation("send_rows.grad", n, h);
  r.send_prob_grad = Value("send_prob.grad", n, 1);
  r.rows = ReceivedRows(r.all, "rows", h);
  r.row_prob = ReceivedProbabilities(r.all, "row_prob");
  r.out = ReceivedRows(r.all, "expert_out", h);
  r.out_grad = ReceivedRows(r.all, "expert_out.grad", h);
  r.rows_grad = ReceivedRows(r.all, "rows.grad", h);
  r.row_prob_grad = ReceivedProbabilities(r.all, "row_prob.grad");
  if (s_.expert_bias) {
    r.step_counts = Value("step_counts", 1, s_.experts, DType::kF64);
  }
  if (s_.shared_ffn > 0) {
    const int64_t up = s_.up_columns(s_.shared_ffn);
    r.shared_up = Activation(Up("shared_"), t, up);
    r.shared_act = Activation("shared_act", t, s_.shared_ffn);
    r.shared_out = Activation("shared_out", t, h);
    r.shared_up_grad = Activation(Up("shared_") + ".grad", t, up);
    if (s_.shared_gate) {
      r.shared_gate = Value("shared_gate", t, 1);
      r.shared_gate_grad = Value("shared_gate.grad", t, 1);
    }
  }
  return r;
}

void DecoderBuilder::MixtureOfExperts() {
  Routing r = DeclareRouting();
  DeclareRouterLosses(r);
  PreDispatch pre_dispatch;
  AddRouter(r, pre_dispatch);
  AddRouterLosses(r, pre_dispatch);
  if (s_.shared_ffn > 0) AddSharedExpert(r, pre_dispatch);
  AddPreDispatch(pre_dispatch);
  Counts(r);
  Dispatch(r);
  if (s_.router_loss.need_counts()) Balance(r);
  Experts(r);
  Combine(r);
}

void DecoderBuilder::AddPreDispatch(const PreDispatch& p) {
  NodeDecl& node = out_.AddNode(NodeKind::kPreDispatch);
  node.phases = {
      Compute(Phase::kForward, p.forward, p.params, {}, p.flops),
      Compute(Phase::kDgrad, p.dgrad, p.params, p.dgrad_grads, p.flops)};
  if (p.wgrad_grads.empty()) return;
  node.phases.push_back(
      Compute(Phase::kWgrad, p.wgrad, {}, p.wgrad_grads, p.wgrad_flops));
}

void DecoderBuilder::AddRouter(const Routing& r, PreDispatch& p) {
  const int64_t t = s_.tokens;
  const int norm2 = Norm("norm2");
  const int router = Param("router", {s_.experts, s_.hidden}, s_.init_std);
  const int offsets = Value("offsets", 1, s_.experts + 1, DType::kI64);
  const int xn2_grad = Activation("xn2.grad", t, s_.hidden);
  const int logits_grad = Value("logits.grad", t, s_.experts);
  const int prob_grad = Value("topk_prob.grad", t, s_.top_k);
  const int kept = s_.capacity_factor > 0
                       ? Value("kept_index", t, s_.top_k, DType::kI32)
                       : kAbsent;
  Append(
      p.forward,
      {R(x_), W(r.rstd2), W(r.xn2), KeepsLogits() ? W(r.logits) : S(r.logits),
       W(r.scores), W(r.index), W(r.prob), W(r.counts), S(offsets),
       W(r.row_of_slot), W(r.token_of_row), W(r.slot_of_row), W(r.sorted_rows),
       W(r.sorted_experts), W(r.send_rows), W(r.send_prob), S(kept)});
  AddExpertBias(r, p);
  Append(p.dgrad,
         {R(dy_), R(x_), R(r.rstd2), R(r.xn2), R(r.scores), R(r.index),
          R(r.prob), R(r.row_of_slot), R(r.sorted_rows), R(r.sorted_experts),
          R(r.send_rows_grad), R(r.send_prob_grad), S(xn2_grad), S(logits_grad),
          S(prob_grad), W(dx_)});
  Append(p.params, {norm2, router});
  Append(p.dgrad_grads, {norm2, router});
  p.flops += 2.0 * t * s_.hidden * s_.experts;
}

// The counts of the last microbatch are those of the step.
void DecoderBuilder::AddExpertBias(const Routing& r, PreDispatch& p) {
  const bool has = s_.expert_bias;
  const int bias = has ? Value("expert_bias", 1, s_.experts) : kAbsent;
  const int counts =
      has ? Value("kept_counts", 1, s_.experts, DType::kI32) : kAbsent;
  Append(p.forward,
         {S(bias), S(counts), Previous(r.step_counts), W(r.step_counts)});
  if (has) out_.AddExpertBias(s_.experts, r.step_counts);
}

void DecoderBuilder::AddSharedExpert(const Routing& r, PreDispatch& p) {
  const int up = Param(Up("shared_"), {s_.up_columns(s_.shared_ffn), s_.hidden},
                       s_.init_std);
  const int down =
      Param("shared_down", {s_.hidden, s_.shared_ffn}, ResidualStd());
  const int act_grad = Activation("shared_act.grad", s_.tokens, s_.shared_ffn);
  const int gate = s_.shared_gate
                       ? Param("shared_gate", {1, s_.hidden}, s_.init_std)
                       : kAbsent;
  Append(p.forward,
         {W(r.shared_up), W(r.shared_act), W(r.shared_out), W(r.shared_gate)});
  Append(p.dgrad, {R(r.shared_up), S(act_grad), W(r.shared_up_grad),
                   R(r.shared_gate), W(r.shared_gate_grad), R(scaled_dy_)});
  Append(p.wgrad, {R(r.xn2), R(r.shared_up_grad), R(r.shared_act),
                   R(BranchGrad()), R(r.shared_gate_grad)});
  Append(p.params, {up, down, gate});
  Append(p.wgrad_grads, {up, down, gate});
  const double flops = FeedForwardFlops(s_.tokens, s_.shared_ffn);
  p.flops += flops;
  p.wgrad_flops += flops;
}

void DecoderBuilder::DeclareRouterLosses(Routing& r) {
  const RouterCoefficients& c = s_.router_loss;
  const int64_t t = s_.tokens;
  if (c.z > 0) r.lse = Value("router_lse", t, 1);
  if (c.sequence_aux > 0) {
    r.sequence_counts =
        Value("sequence_counts", s_.microbatch, s_.experts, DType::kI32);
  }
  if (c.need_counts()) {
    r.score_sums = Value("score_sums", 1, s_.experts, DType::kF64);
    r.all_counts = Value("balance_counts", 1, s_.balance_columns());
  }
  if (s_.own_loss_counts()) {
    r.loss_counts = Value("loss_counts", 1, s_.experts, DType::kI32);
  }
  if (c.global_aux > 0) {
    r.running_counts = Value("running_counts", 1, s_.balance_columns());
  }
  r.aux = out_.AddRouterLoss(RouterLoss::kAux, c.aux);
  r.sequence_aux = out_.AddRouterLoss(RouterLoss::kSequenceAux, c.sequence_aux);
  r.global_aux = out_.AddRouterLoss(RouterLoss::kGlobalAux, c.global_aux);
  r.z = out_.AddRouterLoss(RouterLoss::kZ, c.z);
}

void DecoderBuilder::AddRouterLosses(const Routing& r, PreDispatch& p) {
  const RouterCoefficients& c = s_.router_loss;
  const int64_t t = s_.tokens;
  const bool any = c.balance() || c.z > 0;
  const bool weighed = any && (s_.token_loss || s_.padding_mask);
  const int weights = any && s_.padding_mask ? loss_weights_ : kAbsent;
  const int grad = c.balance() ? Value("scores.grad", t, s_.experts) : kAbsent;
  const int plain = s_.own_loss_choices()
                        ? Value("plain_index", t, s_.top_k, DType::kI32)
                        : kAbsent;
  const int scores =
      s_.own_loss_scores() ? Value("loss_scores", t, s_.experts) : kAbsent;
  Append(p.forward, {W(r.lse), W(r.z), W(r.sequence_counts), W(r.sequence_aux),
                     W(r.score_sums), S(plain), S(scores), W(r.loss_counts),
                     R(any || s_.expert_bias ? valid_ : kAbsent), R(weights)});
  Append(p.dgrad,
         {R(r.lse), R(KeepsLogits() ? r.logits : kAbsent),
          R(c.aux > 0 ? r.all_counts : kAbsent), R(r.running_counts),
          R(r.sequence_counts), S(grad), R(weighed ? loss_weights_ : kAbsent),
          R(any ? valid_ : kAbsent)});
}

void DecoderBuilder::Balance(const Routing& r) {
  const bool aux = s_.router_loss.aux > 0;
  const int counts = s_.own_loss_counts() ? r.loss_counts : r.counts;
  out_.AddNode(NodeKind::kBalance).phases = {ExchangeWithAll(
      Phase::kForward,
      {R(counts), R(r.score_sums), Previous(r.running_counts),
       aux ? W(r.all_counts) : S(r.all_counts), W(r.running_counts), W(r.aux),
       W(r.global_aux), R(s_.padding_mask ? loss_weights_ : kAbsent)})};
}

void DecoderBuilder::Counts(const Routing& r) {
  NodeDecl& node = out_.AddNode(NodeKind::kCounts);
  node.phases = {Exchange(Phase::kForward, {R(r.counts), W(r.all)})};
  node.host_wait_after = true;
}

void DecoderBuilder::Dispatch(const Routing& r) {
  out_.AddNode(NodeKind::kDispatch).phases = {
      Exchange(Phase::kForward, {R(r.send_rows), R(r.send_prob), R(r.all),
                                 W(r.rows), W(r.row_prob)}),
      Exchange(Phase::kDgrad, {R(r.rows_grad), R(r.row_prob_grad), R(r.all),
                               W(r.send_rows_grad), W(r.send_prob_grad)}),
  };
}

void DecoderBuilder::Experts(const Routing& r) {
  const int64_t f = s_.expert_ffn;
  const int64_t columns = s_.up_columns(f);
  const int up_w = out_.ExpertParam(
      Up("experts."), {s_.experts, columns, s_.hidden}, s_.init_std, s_.ep);
  const int down_w = out_.ExpertParam(
      "experts.down", {s_.experts, s_.hidden, f}, ResidualStd(), s_.ep);
  const int up = ReceivedRows(r.all, Up(""), columns);
  const int act = ReceivedRows(r.all, "act", f);
  const int act_grad = ReceivedRows(r.all, "act.grad", f);
  const int up_grad = ReceivedRows(r.all, Up("") + ".grad", columns);
  const double flops = FeedForwardFlops(s_.sent_rows(), f);
  out_.AddNode(NodeKind::kExperts).phases = {
      Compute(Phase::kForward,
              {R(r.rows), R(r.row_prob), R(r.all), W(up), W(act), W(r.out)},
              {up_w, down_w}, {}, flops),
      Compute(Phase::kDgrad,
              {R(r.out_grad), R(up), R(r.row_prob), R(r.all), S(act_grad),
               W(up_grad), W(r.rows_grad), W(r.row_prob_grad)},
              {up_w, down_w}, {}, flops),
      Compute(Phase::kWgrad,
              {R(r.rows), R(act), R(up_grad), R(r.out_grad), R(r.all)}, {},
              {up_w, down_w}, flops),
  };
}

void DecoderBuilder::Combine(const Routing& r) {
  const int back = Activation("combine_back", s_.sent_rows(), s_.hidden);
  const int d_back = Activation("combine_back.grad", s_.sent_rows(), s_.hidden);
  Args forward = {
      R(r.out), R(r.all), R(x_), R(r.sorted_rows), R(r.sorted_experts),
      S(back),  W(y_)};
  if (s_.shared_ffn > 0) forward.push_back(R(r.shared_out));
  out_.AddNode(NodeKind::kCombine).phases = {
      Exchange(Phase::kForward, forward),
      Exchange(Phase::kDgrad, {R(dy_), R(r.all), R(r.token_of_row), S(d_back),
                               W(r.out_grad), W(scaled_dy_)}),
  };
}

}  // namespace weft::model
