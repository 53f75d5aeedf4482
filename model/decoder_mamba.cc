// The Mamba-2 block of a decoder layer.
#include <algorithm>
#include <cmath>
#include <vector>

#include "model/decoder.h"
#include "model/decoder_builder.h"

namespace weft::model {
namespace {

// Scratch of the scan in floats: of every head its steps and decays, scores
// inside chunks, the states between them, and a chunk at work; backward, the
// gradients of most. The executor checks it against what the op asks for.
int64_t ScanScratch(const Shape& s, bool backward) {
  const MambaShape& m = s.mamba;
  const int64_t chunk = std::min(m.chunk, s.sequence);
  const int64_t chunks = (s.sequence + m.chunk - 1) / m.chunk;
  const int64_t states = s.microbatch * chunks * m.inner() * m.state_size;
  const int64_t scores = s.tokens * m.groups * chunk;
  const int64_t steps = 3 * m.heads * s.tokens;
  const int64_t work = 3 * chunk * (chunk + m.head_dim + m.state_size);
  const int64_t forward = steps + scores + states + work;
  if (!backward) return forward;
  return forward + steps + scores + states + s.tokens * m.inner();
}

// Steps begin between these, spread evenly over their logarithms, and decay
// rates between 1 and 16 (Gu and Dao, the reference implementation).
constexpr double kLeastStep = 1e-3;
constexpr double kLargestStep = 0.1;
constexpr double kLargestRate = 16;

}  // namespace

DecoderBuilder::MambaParams DecoderBuilder::DeclareMambaParams() {
  const MambaShape& m = s_.mamba;
  const double bound = 1 / std::sqrt(m.conv_width);
  MambaParams p;
  p.norm = Norm("norm");
  p.in_w = Param("in_proj", {m.projected_columns(), s_.hidden}, s_.init_std);
  p.conv_w =
      out_.UniformParam("conv_weight", {m.conv_columns(), 1, m.conv_width},
                        {-bound, bound, UniformMap::kIdentity});
  if (m.conv_bias) {
    p.conv_b = out_.UniformParam("conv_bias", {m.conv_columns()},
                                 {-bound, bound, UniformMap::kIdentity});
  }
  // bf16 has a step of 2^-5 where dt_bias lies: products of many decays, and
  // updates that add up, need more.
  p.dt_bias = out_.InFp32(
      out_.UniformParam("dt_bias", {m.heads},
                        {std::log(kLeastStep), std::log(kLargestStep),
                         UniformMap::kInverseSoftplusOfExp}));
  p.a_log = out_.InFp32(out_.UniformParam("A_log", {m.heads},
                                          {1, kLargestRate, UniformMap::kLog}));
  p.d = out_.InFp32(out_.Norm("D", m.heads));
  p.gated_norm = out_.Norm("gated_norm", m.inner());
  p.out_w = Param("out_proj", {s_.hidden, m.inner()}, ResidualStd());
  if (m.projection_bias) {
    p.in_b = Param("in_proj_bias", {m.projected_columns()}, 0);
    p.out_b = Param("out_proj_bias", {s_.hidden}, 0);
  }
  return p;
}

std::vector<StepDecl> DecoderBuilder::MambaSteps() const {
  namespace args = mamba;
  const MambaShape& m = s_.mamba;
  const double of_column = 2.0 * s_.tokens * s_.hidden;
  StepDecl norm = {RecomputePart::kNorm, {args::kX}, {args::kRstd, args::kXn}};
  norm.params = {args::kNorm};
  StepDecl in = {RecomputePart::kNone, {args::kXn}, {args::kProjected}};
  in.params = {args::kInW, args::kInB};
  in.flops = of_column * m.projected_columns();
  StepDecl mix = {RecomputePart::kNone,
                  {args::kProjected},
                  {args::kConv, args::kScan, args::kGatedRstd, args::kGated}};
  mix.scratch = {args::kScratch};
  mix.params = {args::kConvW, args::kConvB, args::kDtBias,
                args::kALog,  args::kD,     args::kGatedNorm};
  mix.attention_flops = StateFlops();
  StepDecl out = {RecomputePart::kNone, {args::kX, args::kGated}, {args::kY}};
  out.params = {args::kOutW, args::kOutB};
  out.flops = of_column * m.inner();
  return {norm, in, mix, out};
}

// The state is read and written once a token.
double DecoderBuilder::StateFlops() const {
  return 4.0 * s_.tokens * s_.mamba.inner() * s_.mamba.state_size;
}

void DecoderBuilder::Mamba() {
  const MambaShape& m = s_.mamba;
  const int64_t t = s_.tokens;
  const MambaParams p = DeclareMambaParams();
  const int rstd = Value("mamba_rstd", t, 1);
  const int xn = Activation("mamba_xn", t, s_.hidden);
  const int projected = Activation("projected", t, m.projected_columns());
  const int conv = Activation("conv", t, m.conv_columns());
  const int scan = Activation("scan", t, m.inner());
  const int gated_rstd = Value("gated_rstd", t, m.norm_groups());
  const int gated = Activation("gated", t, m.inner());
  const int projected_grad =
      Activation("projected.grad", t, m.projected_columns());
  const int scratch = Value("scan_scratch", 1, ScanScratch(s_, false));
  const int d_scratch = Value("scan_scratch.grad", 1, ScanScratch(s_, true));
  const int conv_grad = Value("conv.grad", t, m.conv_columns());
  const int scan_grad = Activation("scan.grad", t, m.inner());
  const int xn_grad = Activation("mamba_xn.grad", t, s_.hidden);

  const std::vector<int> params = {p.norm,    p.in_w,  p.conv_w, p.conv_b,
                                   p.dt_bias, p.a_log, p.d,      p.gated_norm,
                                   p.out_w,   p.in_b,  p.out_b};
  const double flops =
      2.0 * t * s_.hidden * (m.projected_columns() + m.inner());
  PhaseDecl forward =
      Compute(Phase::kForward,
              {R(x_), W(rstd), W(xn), W(projected), W(conv), W(scan),
               W(gated_rstd), W(gated), S(scratch), W(y_)},
              params, {}, flops);
  PhaseDecl dgrad = Compute(
      Phase::kDgrad,
      {R(dy_), R(x_), R(rstd), R(projected), R(conv), R(scan), R(gated_rstd),
       S(d_scratch), S(conv_grad), S(scan_grad), S(xn_grad), W(projected_grad),
       W(dx_), W(scaled_dy_)},
      params,
      {p.norm, p.conv_w, p.conv_b, p.dt_bias, p.a_log, p.d, p.gated_norm},
      flops);
  forward.attention_flops = StateFlops();
  // Backward does twice as much.
  dgrad.attention_flops = 2 * forward.attention_flops;
  NodeDecl& node = out_.AddNode(NodeKind::kMamba);
  node.steps = MambaSteps();
  node.phases = {std::move(forward), std::move(dgrad),
                 Compute(Phase::kWgrad,
                         {R(xn), R(projected_grad), R(gated), R(BranchGrad())},
                         {}, {p.in_w, p.out_w, p.in_b, p.out_b}, flops)};
}

}  // namespace weft::model
