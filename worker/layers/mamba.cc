// The Mamba-2 block: with z, x, B, C and dt the columns of in_proj(norm(x)),
// y = x + out_proj(gated_norm(scan(silu(conv(x, B, C)), dt), z)).
#include "worker/layers/mamba.h"

#include "kernels/ops/causal_conv/causal_conv.h"
#include "kernels/ops/gated_norm/gated_norm.h"
#include "kernels/ops/ssm_scan/ssm_scan.h"
#include "model/decoder.h"
#include "worker/layers/linear.h"
#include "worker/layers/nodes.h"
#include "worker/layers/residual.h"

namespace weft::layers {
namespace {

namespace args = model::mamba;

// The columns of a projected row: z, then what the convolution takes, then dt.
int64_t ConvColumn(const model::Shape& s) { return s.mamba.inner(); }
int64_t DtColumn(const model::Shape& s) {
  return s.mamba.inner() + s.mamba.conv_columns();
}

ops::CausalConvShape ConvShape(const model::Shape& s) {
  return {s.microbatch, s.sequence, s.mamba.conv_columns(), s.mamba.conv_width,
          s.mamba.projected_columns()};
}

ops::GatedNormShape NormShape(const model::Shape& s) {
  return {s.tokens, s.mamba.inner(), s.mamba.norm_groups(),
          s.mamba.projected_columns()};
}

ops::SsmScanShape ScanShape(const model::Shape& s) {
  const model::MambaShape& m = s.mamba;
  ops::SsmScanShape shape;
  shape.batch = s.microbatch;
  shape.seq = s.sequence;
  shape.heads = m.heads;
  shape.head_dim = m.head_dim;
  shape.groups = m.groups;
  shape.state_size = m.state_size;
  shape.chunk = m.chunk;
  shape.dt_stride = m.projected_columns();
  shape.dt_min = static_cast<float>(m.dt_min);
  if (m.dt_max > 0) shape.dt_max = static_cast<float>(m.dt_max);
  return shape;
}

ops::SsmScanInputs ScanInputs(const NodeContext& ctx,
                              const device::Tensor& conv,
                              const device::Tensor& projected) {
  return {conv, projected + DtColumn(*ctx.shape), ctx.params[args::kDtBias],
          ctx.params[args::kALog], ctx.params[args::kD]};
}

Linear InSize(const model::Shape& s) {
  return {s.tokens, s.hidden, s.mamba.projected_columns()};
}
Linear OutSize(const model::Shape& s) {
  return {s.tokens, s.mamba.inner(), s.hidden};
}

void MixForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  const device::Tensor& projected = ctx.tensor(args::kProjected);
  ops::CausalConvForwardArgs conv;
  conv.shape = ConvShape(s);
  conv.x = projected + ConvColumn(s);
  conv.weight = ctx.params[args::kConvW];
  conv.bias = ctx.params[args::kConvB];
  conv.y = ctx.tensor(args::kConv);
  ops::CausalConvForward(conv, stream);

  ops::SsmScanForwardArgs scan;
  scan.shape = ScanShape(s);
  scan.in = ScanInputs(ctx, ctx.tensor(args::kConv), projected);
  scan.y = ctx.tensor(args::kScan);
  scan.scratch = ctx.f32(args::kScratch);
  ops::SsmScanForward(scan, stream);

  ops::GatedNormForwardArgs norm;
  norm.shape = NormShape(s);
  norm.eps = static_cast<float>(s.norm_epsilon);
  norm.y = ctx.tensor(args::kScan);
  norm.z = projected;
  norm.weight = ctx.params[args::kGatedNorm];
  norm.out = ctx.tensor(args::kGated);
  norm.rstd = ctx.f32(args::kGatedRstd);
  ops::GatedNormForward(norm, stream);
}

// The gradient of `gated`, in kDScanGrad, becomes that of `scan`.
void GatedNormDgrad(const NodeContext& ctx, device::Stream& stream) {
  ops::GatedNormBackwardArgs norm;
  norm.shape = NormShape(*ctx.shape);
  norm.y = ctx.tensor(args::kDScan);
  norm.z = ctx.tensor(args::kDProjected);
  norm.weight = ctx.params[args::kGatedNorm];
  norm.rstd = ctx.f32(args::kDGatedRstd);
  norm.d_out = ctx.tensor(args::kDScanGrad);
  norm.dy = ctx.tensor(args::kDScanGrad);
  norm.dz = ctx.tensor(args::kDProjectedGrad);
  norm.dweight = ctx.grads[args::kGGatedNorm].data;
  norm.accumulate = ctx.grads[args::kGGatedNorm].accumulate;
  ops::GatedNormBackward(norm, stream);
}

void ScanDgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  const auto grad = [&](int number) {
    const Grad& of_param = ctx.grads[number];
    return ops::SsmScanParamGrad{of_param.data, of_param.accumulate};
  };
  ops::SsmScanBackwardArgs scan;
  scan.shape = ScanShape(s);
  scan.in =
      ScanInputs(ctx, ctx.tensor(args::kDConv), ctx.tensor(args::kDProjected));
  scan.d_y = ctx.tensor(args::kDScanGrad);
  scan.d_xbc = ctx.f32(args::kDConvGrad);
  scan.d_dt = ctx.tensor(args::kDProjectedGrad) + DtColumn(s);
  scan.d_dt_bias = grad(args::kGDtBias);
  scan.d_a_log = grad(args::kGALog);
  scan.d_d = grad(args::kGD);
  scan.scratch = ctx.f32(args::kDScratch);
  ops::SsmScanBackward(scan, stream);
}

void ConvDgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  ops::CausalConvBackwardArgs conv;
  conv.shape = ConvShape(s);
  conv.x = ctx.tensor(args::kDProjected) + ConvColumn(s);
  conv.weight = ctx.params[args::kConvW];
  conv.bias = ctx.params[args::kConvB];
  conv.dy = ctx.f32(args::kDConvGrad);
  conv.dx = ctx.tensor(args::kDProjectedGrad) + ConvColumn(s);
  conv.dweight = ctx.grads[args::kGConvW].data;
  conv.accumulate_dweight = ctx.grads[args::kGConvW].accumulate;
  conv.dbias = ctx.grads[args::kGConvB].data;
  conv.accumulate_dbias = ctx.grads[args::kGConvB].accumulate;
  ops::CausalConvBackward(conv, stream);
}

void InForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  Forward(InSize(s), ctx.tensor(args::kXn), ctx.params[args::kInW],
          ctx.tensor(args::kProjected), stream);
  AddBias(InSize(s), ctx.params[args::kInB], ctx.tensor(args::kProjected),
          stream);
}

void OutForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  Forward(OutSize(s), ctx.tensor(args::kGated), ctx.params[args::kOutW],
          ctx.tensor(args::kY), stream);
  AddBias(OutSize(s), ctx.params[args::kOutB], ctx.tensor(args::kY), stream);
  AddResidual(s, ctx.tensor(args::kX), ctx.tensor(args::kY), stream);
}

}  // namespace

absl::Status MambaForward(const NodeContext& ctx, device::Stream& stream) {
  if (ctx.Runs(args::kNormStep)) {
    NormForward(*ctx.shape, ctx.tensor(args::kX), ctx.params[args::kNorm],
                ctx.tensor(args::kXn), ctx.f32(args::kRstd), stream);
  }
  if (ctx.Runs(args::kInStep)) InForward(ctx, stream);
  if (ctx.Runs(args::kMixStep)) MixForward(ctx, stream);
  if (ctx.Runs(args::kOutStep)) OutForward(ctx, stream);
  return absl::OkStatus();
}

absl::Status MambaDgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  const device::ConstTensor d_branch = BranchGrad(
      s, ctx.tensor(args::kDDy), ctx.tensor(args::kDBranchGrad), stream);
  Dgrad(OutSize(s), d_branch, ctx.params[args::kOutW],
        ctx.tensor(args::kDScanGrad), stream);
  GatedNormDgrad(ctx, stream);
  ScanDgrad(ctx, stream);
  ConvDgrad(ctx, stream);
  Dgrad(InSize(s), ctx.tensor(args::kDProjectedGrad), ctx.params[args::kInW],
        ctx.tensor(args::kDXnGrad), stream);
  NormBackwardArgs norm;
  norm.x = ctx.tensor(args::kDX);
  norm.weight = ctx.params[args::kNorm];
  norm.rstd = ctx.f32(args::kDRstd);
  norm.dy = ctx.tensor(args::kDXnGrad);
  norm.add = ctx.tensor(args::kDDy);
  norm.dx = ctx.tensor(args::kDDx);
  norm.dweight = ctx.grads[args::kGNorm];
  NormBackward(s, norm, stream);
  return absl::OkStatus();
}

absl::Status MambaWgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  Wgrad(InSize(s), ctx.tensor(args::kWProjectedGrad), ctx.tensor(args::kWXn),
        ctx.grads[args::kGIn], stream);
  Wgrad(OutSize(s), ctx.tensor(args::kWBranchGrad), ctx.tensor(args::kWGated),
        ctx.grads[args::kGOut], stream);
  BiasWgrad(InSize(s), ctx.tensor(args::kWProjectedGrad),
            ctx.grads[args::kGInB], stream);
  BiasWgrad(OutSize(s), ctx.tensor(args::kWBranchGrad), ctx.grads[args::kGOutB],
            stream);
  return absl::OkStatus();
}

int64_t MambaForwardScratch(const model::Shape& shape) {
  return ops::SsmScanForwardScratchElements(ScanShape(shape));
}

int64_t MambaDgradScratch(const model::Shape& shape) {
  return ops::SsmScanBackwardScratchElements(ScanShape(shape));
}

}  // namespace weft::layers
