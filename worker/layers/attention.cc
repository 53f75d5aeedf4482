#include "worker/layers/attention.h"

#include <cmath>

#include "kernels/ops/attention/attention.h"
#include "kernels/ops/elementwise/elementwise.h"
#include "kernels/ops/rope/rope.h"
#include "model/decoder.h"
#include "worker/layers/linear.h"

namespace weft::layers {
namespace {

namespace pd = model::pre_dispatch;

ops::AttentionShape AttentionShapeOf(const model::Shape& s) {
  ops::AttentionShape shape;
  shape.batch = s.microbatch;
  shape.seq = s.sequence;
  shape.num_heads = s.heads;
  shape.num_kv_heads = s.kv_heads;
  shape.head_dim = s.head_dim;
  shape.scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.head_dim)));
  return shape;
}

ops::RopeArgs Rope(const NodeContext& ctx, float* qkv) {
  const model::Shape& s = *ctx.shape;
  ops::RopeArgs args;
  args.tokens = s.tokens;
  args.seq = s.sequence;
  args.num_heads = s.heads;
  args.num_kv_heads = s.kv_heads;
  args.head_dim = s.head_dim;
  args.rot_dim = s.head_dim;
  args.cos = ctx.constants->rope_cos;
  args.sin = ctx.constants->rope_sin;
  args.qkv = qkv;
  return args;
}

Linear QkvSize(const model::Shape& s) {
  return {s.tokens, s.hidden, s.qkv_columns()};
}
Linear OutSize(const model::Shape& s) {
  return {s.tokens, s.heads * s.head_dim, s.hidden};
}

}  // namespace

void AttentionHalfForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  NormForward(s, ctx.f32(pd::kX), ctx.params[pd::kNorm1], ctx.f32(pd::kXn1),
              ctx.f32(pd::kRstd1), stream);
  Forward(QkvSize(s), ctx.f32(pd::kXn1), ctx.params[pd::kQkvW],
          ctx.f32(pd::kQkv), stream);
  ops::RopeForward(Rope(ctx, ctx.f32(pd::kQkv)), stream);

  ops::AttentionForwardArgs attention;
  attention.shape = AttentionShapeOf(s);
  attention.qkv = ctx.f32(pd::kQkv);
  attention.out = ctx.f32(pd::kAttnOut);
  attention.lse = ctx.f32(pd::kLse);
  attention.scratch = ctx.f32(pd::kAttnScratch);
  ops::AttentionForward(attention, stream);

  Forward(OutSize(s), ctx.f32(pd::kAttnOut), ctx.params[pd::kOutW],
          ctx.f32(pd::kH1), stream);
  ops::AddArgs residual;
  residual.count = s.tokens * s.hidden;
  residual.a = ctx.f32(pd::kX);
  residual.b = ctx.f32(pd::kH1);
  residual.out = ctx.f32(pd::kH1);
  ops::Add(residual, stream);
}

void AttentionHalfDgrad(const NodeContext& ctx, const float* d_h1,
                        device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  // First the gradient of the attention's output, then that of norm1's output.
  float* scratch = ctx.f32(pd::kDScratch);
  Dgrad(OutSize(s), d_h1, ctx.params[pd::kOutW], scratch, stream);

  ops::AttentionBackwardArgs attention;
  attention.shape = AttentionShapeOf(s);
  attention.qkv = ctx.f32(pd::kDQkv);
  attention.out = ctx.f32(pd::kDAttnOut);
  attention.lse = ctx.f32(pd::kDLse);
  attention.d_out = scratch;
  attention.d_qkv = ctx.f32(pd::kDQkvGrad);
  attention.scratch = ctx.f32(pd::kDAttnScratch);
  ops::AttentionBackward(attention, stream);
  ops::RopeBackward(Rope(ctx, ctx.f32(pd::kDQkvGrad)), stream);

  Dgrad(QkvSize(s), ctx.f32(pd::kDQkvGrad), ctx.params[pd::kQkvW], scratch,
        stream);
  NormBackwardArgs norm;
  norm.x = ctx.f32(pd::kDX);
  norm.weight = ctx.params[pd::kNorm1];
  norm.rstd = ctx.f32(pd::kDRstd1);
  norm.dy = scratch;
  norm.add = d_h1;
  norm.dx = ctx.f32(pd::kDDx);
  norm.dweight = ctx.grads[pd::kGNorm1];
  NormBackward(s, norm, stream);
}

void AttentionHalfWgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  Wgrad(QkvSize(s), ctx.f32(pd::kWQkvGrad), ctx.f32(pd::kWXn1),
        ctx.grads[pd::kGQkv], stream);
  Wgrad(OutSize(s), ctx.f32(pd::kWH1Grad), ctx.f32(pd::kWAttnOut),
        ctx.grads[pd::kGOut], stream);
}

int64_t AttentionForwardScratch(const model::Shape& shape) {
  return ops::AttentionForwardScratchElements(AttentionShapeOf(shape));
}

int64_t AttentionDgradScratch(const model::Shape& shape) {
  return ops::AttentionBackwardScratchElements(AttentionShapeOf(shape));
}

}  // namespace weft::layers
