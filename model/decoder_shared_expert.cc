// The shared expert of an experts block, which every token meets: a node of its
// own, before the dispatch or beside it.
#include <utility>
#include <vector>

#include "model/decoder.h"
#include "model/decoder_builder.h"

namespace weft::model {

DecoderBuilder::SharedExpert DecoderBuilder::DeclareSharedExpert() {
  const int64_t t = s_.tokens;
  const int64_t up = s_.up_columns(s_.shared_ffn);
  SharedExpert e;
  e.up_w = Param(Up("shared_"), {up, s_.hidden}, s_.init_std);
  e.down_w = Param("shared_down", {s_.hidden, s_.shared_ffn}, ResidualStd());
  e.up = Activation(Up("shared_"), t, up);
  e.act = Activation("shared_act", t, s_.shared_ffn);
  e.up_grad = Activation(Up("shared_") + ".grad", t, up);
  e.act_grad = Activation("shared_act.grad", t, s_.shared_ffn);
  if (s_.shared_gate) {
    e.gate_w = Param("shared_gate", {1, s_.hidden}, s_.init_std);
    e.gate = Value("shared_gate", t, 1);
    e.gate_grad = Value("shared_gate.grad", t, 1);
  }
  return e;
}

std::vector<StepDecl> DecoderBuilder::SharedExpertSteps() const {
  namespace args = shared_expert;
  const double of_weight = 2.0 * s_.tokens * s_.hidden;
  StepDecl up = {RecomputePart::kSharedExpert,
                 {args::kXn2},
                 {args::kUp, args::kAct, args::kGate}};
  up.params = {args::kUpW, args::kGateW};
  up.flops = of_weight * s_.up_columns(s_.shared_ffn);
  StepDecl down = {RecomputePart::kNone, {args::kAct}, {args::kOut}};
  down.params = {args::kDownW};
  down.flops = of_weight * s_.shared_ffn;
  return {up, down};
}

void DecoderBuilder::AddSharedExpert(const Routing& r, const SharedExpert& e) {
  const std::vector<int> params = {e.up_w, e.down_w, e.gate_w};
  const double flops = FeedForwardFlops(s_.tokens, s_.shared_ffn);
  NodeDecl& node = out_.AddNode(NodeKind::kSharedExpert);
  node.steps = SharedExpertSteps();
  node.phases = {
      Compute(Phase::kForward,
              {R(r.xn2), W(e.up), W(e.act), W(r.shared_out), W(e.gate)}, params,
              {}, flops),
      Compute(Phase::kDgrad,
              {R(BranchGrad()), R(e.up), S(e.act_grad), W(e.up_grad), R(e.gate),
               W(e.gate_grad), W(r.shared_xn2_grad)},
              params, {}, flops),
      Compute(
          Phase::kWgrad,
          {R(r.xn2), R(e.up_grad), R(e.act), R(BranchGrad()), R(e.gate_grad)},
          {}, params, flops)};
}

}  // namespace weft::model
