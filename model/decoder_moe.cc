// The experts block of a decoder layer.
#include <utility>
#include <vector>

#include "model/decoder.h"
#include "model/decoder_builder.h"

namespace weft::model {

DecoderBuilder::Routing DecoderBuilder::DeclareRouting() {
  const int64_t t = s_.tokens;
  const int64_t h = s_.hidden;
  const int64_t k = s_.top_k;
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
  r.sorted_rows = Value("sorted_rows", t, k, DType::kI32);
  r.sorted_experts = Value("sorted_experts", t, k, DType::kI32);
  if (s_.capacity_factor > 0) {
    r.kept = Value("kept_index", t, k, DType::kI32);
  }
  DeclareSent(r);
  if (s_.gathers_tokens()) DeclareOwnRows(r);
  r.rows = ReceivedRows(r, "rows", h);
  r.row_prob = Received(r, "row_prob", 1, DType::kF32);
  r.out = ReceivedRows(r, "expert_out", h);
  r.out_grad = ReceivedRows(r, "expert_out.grad", h);
  r.rows_grad = ReceivedRows(r, "rows.grad", h);
  r.row_prob_grad = Received(r, "row_prob.grad", 1, DType::kF32);
  if (s_.expert_bias) {
    r.step_counts = Value("step_counts", 1, s_.experts, DType::kF64);
  }
  if (s_.shared_ffn > 0) {
    r.shared_out = Activation("shared_out", t, h);
    r.shared_xn2_grad = Activation("shared_xn2.grad", t, h);
  }
  return r;
}

void DecoderBuilder::DeclareSent(Routing& r) {
  const int64_t n = s_.sent_rows();
  if (s_.gathers_tokens()) {
    r.send_rows = r.xn2;
    r.send_prob = r.prob;
    r.send_rows_grad =
        Activation("send_rows.grad", s_.group_tokens(), s_.hidden);
    r.send_prob_grad = Value("send_prob.grad", s_.ep * s_.slots(), 1);
    return;
  }
  r.token_of_row = Value("token_of_row", n, 1, DType::kI32);
  r.slot_of_row = Value("slot_of_row", n, 1, DType::kI32);
  r.send_rows = Activation("send_rows", n, s_.hidden);
  r.send_prob = Value("send_prob", n, 1);
  r.send_rows_grad = Activation("send_rows.grad", n, s_.hidden);
  r.send_prob_grad = Value("send_prob.grad", n, 1);
}

void DecoderBuilder::DeclareOwnRows(Routing& r) {
  const int64_t g = s_.group_tokens();
  out_.AddDeviceCounts(r.all);
  r.own.offsets = Value("own_offsets", 1, s_.local_experts() + 1, DType::kI64);
  r.own.row_of_slot = Value("own_row_of_slot", g, s_.top_k, DType::kI32);
  r.own.slot_of_row = Received(r, "own_slot_of_row", 1, DType::kI32);
  r.own.token_of_row = Received(r, "own_token_of_row", 1, DType::kI32);
  r.own.sorted_rows = Value("own_sorted_rows", g, s_.top_k, DType::kI32);
  r.own.sorted_experts = Value("own_sorted_experts", g, s_.top_k, DType::kI32);
}

void DecoderBuilder::MixtureOfExperts() {
  Routing r = DeclareRouting();
  DeclareRouterLosses(r);
  PreDispatch pre_dispatch;
  AddRouter(r, pre_dispatch);
  AddRouterLosses(r, pre_dispatch);
  const bool has_shared = s_.shared_ffn > 0;
  SharedExpert shared;
  if (has_shared) shared = DeclareSharedExpert();
  AddPreDispatch(pre_dispatch);
  const bool overlap = s_.overlap_shared_expert;
  if (has_shared && !overlap) AddSharedExpert(r, shared);
  Counts(r);
  Dispatch(r);
  if (s_.router_loss.need_counts()) Balance(r);
  if (has_shared && overlap) AddSharedExpert(r, shared);
  Experts(r);
  Combine(r);
}

// Routing never runs again: backward reads what it chose.
std::vector<StepDecl> DecoderBuilder::PreDispatchSteps() const {
  namespace pd = pre_dispatch;
  StepDecl norm = {RecomputePart::kNorm, {pd::kX}, {pd::kRstd2, pd::kXn2}};
  norm.params = {pd::kNorm2};
  const StepDecl send = {
      RecomputePart::kNone, {pd::kXn2, pd::kTokenOfRow}, {pd::kSendRows}};
  return {norm, {}, send};
}

void DecoderBuilder::AddPreDispatch(const PreDispatch& p) {
  NodeDecl& node = out_.AddNode(NodeKind::kPreDispatch);
  node.steps = PreDispatchSteps();
  node.phases = {
      Compute(Phase::kForward, p.forward, p.params, {}, p.flops),
      Compute(Phase::kDgrad, p.dgrad, p.params, p.dgrad_grads, p.flops)};
}

int DecoderBuilder::TakeReplay() {
  if (replay_.empty()) return kAbsent;
  const int value = replay_.front();
  replay_.pop_front();
  return value;
}

void DecoderBuilder::AddRouter(const Routing& r, PreDispatch& p) {
  const int64_t t = s_.tokens;
  const int norm2 = Norm("norm2");
  const int router = Param("router", {s_.experts, s_.hidden}, s_.init_std);
  const bool sends = !s_.gathers_tokens();
  const int offsets =
      sends ? Value("offsets", 1, s_.experts + 1, DType::kI64) : kAbsent;
  const int xn2_grad = Activation("xn2.grad", t, s_.hidden);
  const int logits_grad = Value("logits.grad", t, s_.experts);
  const int prob_grad = Value("topk_prob.grad", t, s_.top_k);
  Append(
      p.forward,
      {R(x_), W(r.rstd2), W(r.xn2), KeepsLogits() ? W(r.logits) : S(r.logits),
       W(r.scores), W(r.index), W(r.prob), W(r.counts), S(offsets),
       W(r.row_of_slot), W(r.token_of_row), W(r.slot_of_row), W(r.sorted_rows),
       W(r.sorted_experts), W(sends ? r.send_rows : kAbsent),
       W(sends ? r.send_prob : kAbsent), sends ? S(r.kept) : W(r.kept)});
  AddExpertBias(r, p);
  Append(p.forward, {R(TakeReplay())});
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
          R(any ? valid_ : kAbsent), R(r.shared_xn2_grad)});
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
  if (!s_.gathers_tokens()) {
    node.phases = {Exchange(Phase::kForward, {R(r.counts), W(r.all)})};
    node.host_wait_after = true;
    return;
  }
  const int index =
      Value("all_index", s_.group_tokens(), s_.top_k, DType::kI32);
  PhaseDecl forward = Exchange(
      Phase::kForward,
      {R(r.counts), W(r.all), R(r.kept != kAbsent ? r.kept : r.index), S(index),
       W(r.own.offsets), W(r.own.row_of_slot), W(r.own.slot_of_row),
       W(r.own.token_of_row), W(r.own.sorted_rows), W(r.own.sorted_experts)});
  forward.bytes_to_peer = (s_.experts + s_.slots()) * SizeOf(DType::kI32);
  node.phases = {std::move(forward)};
}

// Probabilities are kept with what the router chose.
std::vector<StepDecl> DecoderBuilder::DispatchSteps() const {
  namespace args = dispatch;
  StepDecl rows = {
      RecomputePart::kNone,
      {args::kSendRows, args::kAll, args::kOffsets, args::kTokenOfRow},
      {args::kRows}};
  rows.scratch = {args::kAllRows};
  if (s_.gathers_tokens()) rows.bytes_to_peer = ActivationBytes();
  return {rows, {}};
}

// All ranks get all tokens and their probabilities; back come sums of rows, and
// what each slot's probability has for a gradient.
void DecoderBuilder::DispatchGathered(const Routing& r) {
  const int64_t g = s_.group_tokens();
  const int rows = Activation("all_rows", g, s_.hidden);
  const int prob = Value("all_prob", g, s_.top_k);
  const int partial = Activation("partial.grad", g, s_.hidden);
  const int partial_prob = Value("partial_prob.grad", g, s_.top_k);
  NodeDecl& node = out_.AddNode(NodeKind::kDispatch);
  node.steps = DispatchSteps();
  node.phases = {
      Exchange(Phase::kForward,
               {R(r.send_rows), R(r.send_prob), R(kAbsent), W(r.rows),
                W(r.row_prob), R(r.own.offsets), R(r.own.token_of_row),
                R(r.own.slot_of_row), S(rows), S(prob)}),
      Exchange(
          Phase::kDgrad,
          {R(r.rows_grad), R(r.row_prob_grad), R(kAbsent), W(r.send_rows_grad),
           W(r.send_prob_grad), R(r.own.sorted_rows), R(r.own.sorted_experts),
           R(r.own.row_of_slot), S(partial), S(partial_prob)}),
  };
  for (PhaseDecl& phase : node.phases) {
    phase.bytes_to_peer = ActivationBytes() + s_.slots() * SizeOf(DType::kF32);
  }
}

void DecoderBuilder::Dispatch(const Routing& r) {
  if (s_.gathers_tokens()) return DispatchGathered(r);
  NodeDecl& node = out_.AddNode(NodeKind::kDispatch);
  node.steps = DispatchSteps();
  node.phases = {
      Exchange(Phase::kForward, {R(r.send_rows), R(r.send_prob), R(r.all),
                                 W(r.rows), W(r.row_prob)}),
      Exchange(Phase::kDgrad, {R(r.rows_grad), R(r.row_prob_grad), R(r.all),
                               W(r.send_rows_grad), W(r.send_prob_grad)}),
  };
}

std::vector<StepDecl> DecoderBuilder::ExpertsSteps() const {
  namespace args = experts;
  const double of_weight = 2.0 * s_.sent_rows() * s_.hidden;
  StepDecl up = {RecomputePart::kNone,
                 {args::kRows, args::kAll, args::kOffsets},
                 {args::kUp}};
  up.params = {args::kUpW};
  up.flops = of_weight * s_.up_columns(s_.expert_ffn);
  const StepDecl act = {RecomputePart::kMoeActivation,
                        {args::kUp, args::kProb, args::kAll, args::kOffsets},
                        {args::kAct}};
  StepDecl down = {RecomputePart::kNone,
                   {args::kAct, args::kAll, args::kOffsets},
                   {args::kOut}};
  down.params = {args::kDownW};
  down.flops = of_weight * s_.expert_ffn;
  return {up, act, down};
}

void DecoderBuilder::Experts(const Routing& r) {
  const int64_t f = s_.expert_ffn;
  const int64_t columns = s_.up_columns(f);
  const int up_w = out_.ExpertParam(
      Up("experts."), {s_.experts, columns, s_.hidden}, s_.init_std, s_.ep);
  const int down_w = out_.ExpertParam(
      "experts.down", {s_.experts, s_.hidden, f}, ResidualStd(), s_.ep);
  const int up = ReceivedRows(r, Up(""), columns);
  const int act = ReceivedRows(r, "act", f);
  const int act_grad = ReceivedRows(r, "act.grad", f);
  const int up_grad = ReceivedRows(r, Up("") + ".grad", columns);
  const int all = s_.gathers_tokens() ? kAbsent : r.all;
  const int offsets = r.own.offsets;
  const double flops = FeedForwardFlops(s_.sent_rows(), f);
  NodeDecl& node = out_.AddNode(NodeKind::kExperts);
  node.steps = ExpertsSteps();
  node.phases = {
      Compute(Phase::kForward,
              {R(r.rows), R(r.row_prob), R(all), W(up), W(act), W(r.out),
               R(offsets)},
              {up_w, down_w}, {}, flops),
      Compute(Phase::kDgrad,
              {R(r.out_grad), R(up), R(r.row_prob), R(all), S(act_grad),
               W(up_grad), W(r.rows_grad), W(r.row_prob_grad), R(offsets)},
              {up_w, down_w}, {}, flops),
      Compute(
          Phase::kWgrad,
          {R(r.rows), R(act), R(up_grad), R(r.out_grad), R(all), R(offsets)},
          {}, {up_w, down_w}, flops),
  };
}

void DecoderBuilder::Combine(const Routing& r) {
  const bool gathers = s_.gathers_tokens();
  const int64_t rows = gathers ? s_.group_tokens() : s_.sent_rows();
  const int back = Activation("combine_back", rows, s_.hidden);
  const int d_back = Activation("combine_back.grad", rows, s_.hidden);
  const int partial =
      gathers ? Activation("combine_partial", rows, s_.hidden) : kAbsent;
  const int all = gathers ? kAbsent : r.all;
  const int token_of_row = gathers ? r.own.token_of_row : r.token_of_row;
  NodeDecl& node = out_.AddNode(NodeKind::kCombine);
  node.phases = {
      Exchange(Phase::kForward,
               {R(r.out), R(all), R(x_), R(r.sorted_rows), R(r.sorted_experts),
                S(back), W(y_), R(r.shared_out), R(r.own.sorted_rows),
                R(r.own.sorted_experts), S(partial)}),
      Exchange(Phase::kDgrad, {R(dy_), R(all), R(token_of_row), S(d_back),
                               W(r.out_grad), W(scaled_dy_), R(r.own.offsets)}),
  };
  if (!gathers) return;
  for (PhaseDecl& phase : node.phases) phase.bytes_to_peer = ActivationBytes();
}

}  // namespace weft::model
