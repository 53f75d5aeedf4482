// The attention block: y = x + out(attention(rotary(qkv(norm1(x))))).
#include "worker/layers/attention.h"

#include <array>

#include "kernels/ops/attention/attention.h"
#include "kernels/ops/head_norm/head_norm.h"
#include "kernels/ops/rope/rope.h"
#include "model/decoder.h"
#include "worker/layers/linear.h"
#include "worker/layers/nodes.h"
#include "worker/layers/residual.h"

namespace weft::layers {
namespace {

namespace at = model::attention;

ops::AttentionShape AttentionShapeOf(const model::Shape& s) {
  ops::AttentionShape shape;
  shape.batch = s.microbatch;
  shape.seq = s.sequence;
  shape.num_heads = s.heads;
  shape.num_kv_heads = s.kv_heads;
  shape.head_dim = s.head_dim;
  shape.scale = static_cast<float>(s.attention_scale());
  return shape;
}

ops::RopeArgs Rope(const NodeContext& ctx, const device::Tensor& qkv) {
  const model::Shape& s = *ctx.shape;
  ops::RopeArgs args;
  args.tokens = s.tokens;
  args.seq = s.sequence;
  args.num_heads = s.heads;
  args.num_kv_heads = s.kv_heads;
  args.head_dim = s.head_dim;
  args.rot_dim = s.rotary_dim();
  args.cos = ctx.constants->rope_cos;
  args.sin = ctx.constants->rope_sin;
  args.qkv = qkv;
  return args;
}

// The norms of queries and of keys, which lie behind the queries in a row.
struct HeadNorm {
  ops::HeadNormShape shape;
  int64_t column = 0;  // of qkv, and of what is kept of it
  int64_t rstd_column = 0;
  int param = 0;
  int grad = 0;
};

std::array<HeadNorm, 2> HeadNormsOf(const model::Shape& s) {
  ops::HeadNormShape shape;
  shape.tokens = s.tokens;
  shape.head_dim = s.head_dim;
  shape.stride = s.qkv_columns();
  shape.kept_stride = s.qk_heads() * s.head_dim;
  shape.rstd_stride = s.qk_heads();
  HeadNorm q = {shape, 0, 0, at::kQNorm, at::kGQNorm};
  HeadNorm k = {shape, s.heads * s.head_dim, s.heads, at::kKNorm, at::kGKNorm};
  q.shape.heads = s.heads;
  k.shape.heads = s.kv_heads;
  return {q, k};
}

void HeadNormsForward(const NodeContext& ctx, device::Stream& stream) {
  for (const HeadNorm& norm : HeadNormsOf(*ctx.shape)) {
    ops::HeadNormForwardArgs args;
    args.shape = norm.shape;
    args.eps = static_cast<float>(ctx.shape->norm_epsilon);
    args.weight = ctx.params[norm.param];
    args.qkv = ctx.tensor(at::kQkv) + norm.column;
    args.x = ctx.tensor(at::kQk) + norm.column;
    args.rstd = ctx.f32(at::kQkRstd) + norm.rstd_column;
    ops::HeadNormForward(args, stream);
  }
}

void HeadNormsBackward(const NodeContext& ctx, device::Stream& stream) {
  for (const HeadNorm& norm : HeadNormsOf(*ctx.shape)) {
    ops::HeadNormBackwardArgs args;
    args.shape = norm.shape;
    args.weight = ctx.params[norm.param];
    args.x = ctx.tensor(at::kDQk) + norm.column;
    args.rstd = ctx.f32(at::kDQkRstd) + norm.rstd_column;
    args.d_qkv = ctx.tensor(at::kDQkvGrad) + norm.column;
    args.dweight = ctx.grads[norm.grad].data;
    args.accumulate = ctx.grads[norm.grad].accumulate;
    ops::HeadNormBackward(args, stream);
  }
}

Linear QkvSize(const model::Shape& s) {
  return {s.tokens, s.hidden, s.qkv_columns()};
}
Linear OutSize(const model::Shape& s) {
  return {s.tokens, s.heads * s.head_dim, s.hidden};
}

void ProjectForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  Forward(QkvSize(s), ctx.tensor(at::kXn), ctx.params[at::kQkvW],
          ctx.tensor(at::kQkv), stream);
  AddBias(QkvSize(s), ctx.params[at::kQkvB], ctx.tensor(at::kQkv), stream);
  if (s.qk_norm) HeadNormsForward(ctx, stream);
  ops::RopeForward(Rope(ctx, ctx.tensor(at::kQkv)), stream);
}

void CoreForward(const NodeContext& ctx, device::Stream& stream) {
  ops::AttentionForwardArgs attention;
  attention.shape = AttentionShapeOf(*ctx.shape);
  attention.qkv = ctx.tensor(at::kQkv);
  attention.out = ctx.tensor(at::kAttnOut);
  attention.lse = ctx.f32(at::kLse);
  attention.scratch = ctx.f32(at::kScratch);
  ops::AttentionForward(attention, stream);
}

void OutForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  Forward(OutSize(s), ctx.tensor(at::kAttnOut), ctx.params[at::kOutW],
          ctx.tensor(at::kY), stream);
  AddBias(OutSize(s), ctx.params[at::kOutB], ctx.tensor(at::kY), stream);
  AddResidual(s, ctx.tensor(at::kX), ctx.tensor(at::kY), stream);
}

}  // namespace

absl::Status AttentionForward(const NodeContext& ctx, device::Stream& stream) {
  if (ctx.Runs(at::kNormStep)) {
    NormForward(*ctx.shape, ctx.tensor(at::kX), ctx.params[at::kNorm1],
                ctx.tensor(at::kXn), ctx.f32(at::kRstd), stream);
  }
  if (ctx.Runs(at::kProjectStep)) ProjectForward(ctx, stream);
  if (ctx.Runs(at::kCoreStep)) CoreForward(ctx, stream);
  if (ctx.Runs(at::kOutStep)) OutForward(ctx, stream);
  return absl::OkStatus();
}

absl::Status AttentionDgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  // First the gradient of the attention's output, then that of norm1's output.
  const device::Tensor& scratch = ctx.tensor(at::kDScratch);
  const device::ConstTensor d_branch =
      BranchGrad(s, ctx.tensor(at::kDDy), ctx.tensor(at::kDBranchGrad), stream);
  Dgrad(OutSize(s), d_branch, ctx.params[at::kOutW], scratch, stream);

  ops::AttentionBackwardArgs attention;
  attention.shape = AttentionShapeOf(s);
  attention.qkv = ctx.tensor(at::kDQkv);
  attention.out = ctx.tensor(at::kDAttnOut);
  attention.lse = ctx.f32(at::kDLse);
  attention.d_out = scratch;
  attention.d_qkv = ctx.tensor(at::kDQkvGrad);
  attention.scratch = ctx.f32(at::kDAttnScratch);
  ops::AttentionBackward(attention, stream);
  ops::RopeBackward(Rope(ctx, ctx.tensor(at::kDQkvGrad)), stream);
  if (s.qk_norm) HeadNormsBackward(ctx, stream);

  Dgrad(QkvSize(s), ctx.tensor(at::kDQkvGrad), ctx.params[at::kQkvW], scratch,
        stream);
  NormBackwardArgs norm;
  norm.x = ctx.tensor(at::kDX);
  norm.weight = ctx.params[at::kNorm1];
  norm.rstd = ctx.f32(at::kDRstd);
  norm.dy = scratch;
  norm.add = ctx.tensor(at::kDDy);
  norm.dx = ctx.tensor(at::kDDx);
  norm.dweight = ctx.grads[at::kGNorm1];
  NormBackward(s, norm, stream);
  return absl::OkStatus();
}

absl::Status AttentionWgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  Wgrad(QkvSize(s), ctx.tensor(at::kWQkvGrad), ctx.tensor(at::kWXn),
        ctx.grads[at::kGQkv], stream);
  Wgrad(OutSize(s), ctx.tensor(at::kWBranchGrad), ctx.tensor(at::kWAttnOut),
        ctx.grads[at::kGOut], stream);
  BiasWgrad(QkvSize(s), ctx.tensor(at::kWQkvGrad), ctx.grads[at::kGQkvB],
            stream);
  BiasWgrad(OutSize(s), ctx.tensor(at::kWBranchGrad), ctx.grads[at::kGOutB],
            stream);
  return absl::OkStatus();
}

int64_t AttentionForwardScratch(const model::Shape& shape) {
  return ops::AttentionForwardScratchElements(AttentionShapeOf(shape));
}

int64_t AttentionDgradScratch(const model::Shape& shape) {
  return ops::AttentionBackwardScratchElements(AttentionShapeOf(shape));
}

}  // namespace weft::layers
