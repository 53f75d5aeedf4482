// The dense feed-forward block of a decoder layer.
#include <vector>

#include "model/decoder.h"
#include "model/decoder_builder.h"

namespace weft::model {

std::vector<StepDecl> DecoderBuilder::MlpSteps() const {
  namespace args = mlp;
  const double of_weight = 2.0 * s_.tokens * s_.hidden;
  StepDecl norm = {
      RecomputePart::kNorm, {args::kX}, {args::kRstd2, args::kXn2}};
  norm.params = {args::kNorm2};
  StepDecl up = {RecomputePart::kMlp, {args::kXn2}, {args::kUp}};
  up.params = {args::kUpW};
  up.flops = of_weight * s_.up_columns(s_.ffn);
  const StepDecl act = {RecomputePart::kMlp, {args::kUp}, {args::kAct}};
  StepDecl down = {RecomputePart::kNone, {args::kX, args::kAct}, {args::kY}};
  down.params = {args::kDownW};
  down.flops = of_weight * s_.ffn;
  return {norm, up, act, down};
}

void DecoderBuilder::Mlp() {
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
  NodeDecl& node = out_.AddNode(NodeKind::kMlp);
  node.steps = MlpSteps();
  node.phases = {
      Compute(Phase::kForward, {R(x_), W(rstd2), W(xn2), W(up), W(act), W(y_)},
              params, {}, flops),
      Compute(Phase::kDgrad,
              {R(dy_), R(x_), R(rstd2), R(xn2), R(up), S(act_grad), S(xn2_grad),
               W(up_grad), W(dx_), W(scaled_dy_)},
              params, {norm2}, flops),
      Compute(Phase::kWgrad, {R(xn2), R(up_grad), R(act), R(BranchGrad())}, {},
              {up_w, down_w}, flops),
  };
}

}  // namespace weft::model
