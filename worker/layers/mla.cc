// The block of multi-head latent attention:
// y = x + m * out(attention(rows of q(norm1(x)) and of kv(norm1(x)))).
#include "worker/layers/mla.h"

#include "kernels/ops/attention/attention.h"
#include "kernels/ops/mla_qkv/mla_qkv.h"
#include "model/decoder.h"
#include "worker/layers/linear.h"
#include "worker/layers/nodes.h"
#include "worker/layers/residual.h"

namespace weft::layers {
namespace {

namespace args = model::mla;
using device::ConstTensor;
using device::Tensor;

ops::AttentionShape AttentionShapeOf(const model::Shape& s) {
  ops::AttentionShape shape;
  shape.batch = s.microbatch;
  shape.seq = s.sequence;
  shape.num_heads = s.heads;
  shape.num_kv_heads = s.heads;
  shape.head_dim = s.mla.qk_dim();
  shape.v_head_dim = s.mla.v_dim;
  shape.scale = static_cast<float>(s.mla_scale());
  return shape;
}

ops::MlaQkvShape QkvShapeOf(const NodeContext& ctx) {
  const model::Shape& s = *ctx.shape;
  ops::MlaQkvShape shape;
  shape.tokens = s.tokens;
  shape.seq = s.sequence;
  shape.heads = s.heads;
  shape.plain_dim = s.mla.plain_dim;
  shape.rope_dim = s.mla.rope_dim;
  shape.v_dim = s.mla.v_dim;
  shape.half_split = s.mla.half_split;
  shape.cos = ctx.constants->mla_cos;
  shape.sin = ctx.constants->mla_sin;
  return shape;
}

bool HasQueryLatent(const model::Shape& s) { return s.mla.q_rank > 0; }

Linear QDownSize(const model::Shape& s) {
  return {s.tokens, s.hidden, s.mla.q_rank};
}
// q_up, or q_proj.
Linear QSize(const model::Shape& s) {
  return {s.tokens, HasQueryLatent(s) ? s.mla.q_rank : s.hidden,
          s.heads * s.mla.qk_dim()};
}
// The two parts of kv_down, whose rows lie one behind the other.
Linear KvLatentSize(const model::Shape& s) {
  return {s.tokens, s.hidden, s.mla.kv_rank};
}
Linear KRopeSize(const model::Shape& s) {
  return {s.tokens, s.hidden, s.mla.rope_dim};
}
int64_t KRopeOffset(const model::Shape& s) { return s.mla.kv_rank * s.hidden; }
Linear KvUpSize(const model::Shape& s) {
  return {s.tokens, s.mla.kv_rank, s.heads * (s.mla.plain_dim + s.mla.v_dim)};
}
Linear OutSize(const model::Shape& s) {
  return {s.tokens, s.heads * s.mla.v_dim, s.hidden};
}

void LatentsForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  const ConstTensor x = ctx.tensor(args::kXn);
  if (HasQueryLatent(s)) {
    Forward(QDownSize(s), x, ctx.params[args::kQDownW],
            ctx.tensor(args::kQLatent), stream);
  }
  const ConstTensor& down = ctx.params[args::kKvDownW];
  Forward(KvLatentSize(s), x, down, ctx.tensor(args::kKvLatent), stream);
  Forward(KRopeSize(s), x, down + KRopeOffset(s), ctx.tensor(args::kKRope),
          stream);
}

void QueriesForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  ConstTensor x = ctx.tensor(args::kXn);
  if (HasQueryLatent(s)) {
    NormForward(s, s.mla.q_rank, ctx.tensor(args::kQLatent),
                ctx.params[args::kQNorm], ctx.tensor(args::kQNormed),
                ctx.f32(args::kQRstd), stream);
    x = ctx.tensor(args::kQNormed);
  }
  Forward(QSize(s), x, ctx.params[args::kQW], ctx.tensor(args::kQ), stream);
}

void KeysAndValuesForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  NormForward(s, s.mla.kv_rank, ctx.tensor(args::kKvLatent),
              ctx.params[args::kKvNorm], ctx.tensor(args::kKvNormed),
              ctx.f32(args::kKvRstd), stream);
  Forward(KvUpSize(s), ctx.tensor(args::kKvNormed), ctx.params[args::kKvUpW],
          ctx.tensor(args::kKv), stream);
}

// From latents to rows of queries, keys and values.
void UpForward(const NodeContext& ctx, device::Stream& stream) {
  QueriesForward(ctx, stream);
  KeysAndValuesForward(ctx, stream);
  ops::MlaQkvForwardArgs rows;
  rows.shape = QkvShapeOf(ctx);
  rows.q = ctx.tensor(args::kQ);
  rows.kv = ctx.tensor(args::kKv);
  rows.k_rope = ctx.tensor(args::kKRope);
  rows.qkv = ctx.tensor(args::kQkv);
  ops::MlaQkvForward(rows, stream);
}

void CoreForward(const NodeContext& ctx, device::Stream& stream) {
  ops::AttentionForwardArgs attention;
  attention.shape = AttentionShapeOf(*ctx.shape);
  attention.qkv = ctx.tensor(args::kQkv);
  attention.out = ctx.tensor(args::kAttnOut);
  attention.lse = ctx.f32(args::kLse);
  attention.scratch = ctx.f32(args::kAttnScratch);
  ops::AttentionForward(attention, stream);
}

void OutForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  Forward(OutSize(s), ctx.tensor(args::kAttnOut), ctx.params[args::kOutW],
          ctx.tensor(args::kY), stream);
  AddResidual(s, ctx.tensor(args::kX), ctx.tensor(args::kY), stream);
}

// From the gradient of the attention's output, in kDScratch, to those of
// queries, keys and values as the projections gave them.
void RowsDgrad(const NodeContext& ctx, device::Stream& stream) {
  ops::AttentionBackwardArgs attention;
  attention.shape = AttentionShapeOf(*ctx.shape);
  attention.qkv = ctx.tensor(args::kDQkv);
  attention.out = ctx.tensor(args::kDAttnOut);
  attention.lse = ctx.f32(args::kDLse);
  attention.d_out = ctx.tensor(args::kDScratch);
  attention.d_qkv = ctx.tensor(args::kDQkvGrad);
  attention.scratch = ctx.f32(args::kDAttnScratch);
  ops::AttentionBackward(attention, stream);

  ops::MlaQkvBackwardArgs rows;
  rows.shape = QkvShapeOf(ctx);
  rows.d_qkv = ctx.tensor(args::kDQkvGrad);
  rows.d_q = ctx.tensor(args::kDQGrad);
  rows.d_kv = ctx.tensor(args::kDKvGrad);
  rows.d_k_rope = ctx.tensor(args::kDKRopeGrad);
  ops::MlaQkvBackward(rows, stream);
}

// Writes the gradient of norm1's output as far as it comes from queries.
void QueriesDgrad(const NodeContext& ctx, const Tensor& d_xn,
                  device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  const bool latent = HasQueryLatent(s);
  Dgrad(QSize(s), ctx.tensor(args::kDQGrad), ctx.params[args::kQW],
        latent ? ctx.tensor(args::kDLatentScratch) : d_xn, stream);
  if (!latent) return;
  NormBackwardArgs norm;
  norm.columns = s.mla.q_rank;
  norm.x = ctx.tensor(args::kDQLatent);
  norm.weight = ctx.params[args::kQNorm];
  norm.rstd = ctx.f32(args::kDQRstd);
  norm.dy = ctx.tensor(args::kDLatentScratch);
  norm.dx = ctx.tensor(args::kDQLatentGrad);
  norm.dweight = ctx.grads[args::kGQNorm];
  NormBackward(s, norm, stream);
  Dgrad(QDownSize(s), ctx.tensor(args::kDQLatentGrad),
        ctx.params[args::kQDownW], d_xn, stream);
}

// Adds to it what comes from keys and values.
void KeysAndValuesDgrad(const NodeContext& ctx, const Tensor& d_xn,
                        device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  Dgrad(KvUpSize(s), ctx.tensor(args::kDKvGrad), ctx.params[args::kKvUpW],
        ctx.tensor(args::kDLatentScratch), stream);
  NormBackwardArgs norm;
  norm.columns = s.mla.kv_rank;
  norm.x = ctx.tensor(args::kDKvLatent);
  norm.weight = ctx.params[args::kKvNorm];
  norm.rstd = ctx.f32(args::kDKvRstd);
  norm.dy = ctx.tensor(args::kDLatentScratch);
  norm.dx = ctx.tensor(args::kDKvLatentGrad);
  norm.dweight = ctx.grads[args::kGKvNorm];
  NormBackward(s, norm, stream);
  const ConstTensor& down = ctx.params[args::kKvDownW];
  AddDgrad(KvLatentSize(s), ctx.tensor(args::kDKvLatentGrad), down, d_xn,
           stream);
  AddDgrad(KRopeSize(s), ctx.tensor(args::kDKRopeGrad), down + KRopeOffset(s),
           d_xn, stream);
}

// The part of a gradient that begins `offset` elements behind.
Grad Behind(const Grad& grad, int64_t offset) {
  if (grad.data == nullptr) return grad;
  return {grad.data + offset, grad.accumulate};
}

}  // namespace

absl::Status MlaForward(const NodeContext& ctx, device::Stream& stream) {
  if (ctx.Runs(args::kNormStep)) {
    NormForward(*ctx.shape, ctx.tensor(args::kX), ctx.params[args::kNorm1],
                ctx.tensor(args::kXn), ctx.f32(args::kRstd), stream);
  }
  if (ctx.Runs(args::kLatentStep)) LatentsForward(ctx, stream);
  if (ctx.Runs(args::kUpStep)) UpForward(ctx, stream);
  if (ctx.Runs(args::kCoreStep)) CoreForward(ctx, stream);
  if (ctx.Runs(args::kOutStep)) OutForward(ctx, stream);
  return absl::OkStatus();
}

absl::Status MlaDgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  // First the gradient of the attention's output, then that of norm1's output.
  const Tensor& scratch = ctx.tensor(args::kDScratch);
  const ConstTensor d_branch = BranchGrad(
      s, ctx.tensor(args::kDDy), ctx.tensor(args::kDBranchGrad), stream);
  Dgrad(OutSize(s), d_branch, ctx.params[args::kOutW], scratch, stream);
  RowsDgrad(ctx, stream);
  QueriesDgrad(ctx, scratch, stream);
  KeysAndValuesDgrad(ctx, scratch, stream);
  NormBackwardArgs norm;
  norm.x = ctx.tensor(args::kDX);
  norm.weight = ctx.params[args::kNorm1];
  norm.rstd = ctx.f32(args::kDRstd);
  norm.dy = scratch;
  norm.add = ctx.tensor(args::kDDy);
  norm.dx = ctx.tensor(args::kDDx);
  norm.dweight = ctx.grads[args::kGNorm1];
  NormBackward(s, norm, stream);
  return absl::OkStatus();
}

absl::Status MlaWgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  const Tensor& xn = ctx.tensor(args::kWXn);
  if (HasQueryLatent(s)) {
    Wgrad(QDownSize(s), ctx.tensor(args::kWQLatentGrad), xn,
          ctx.grads[args::kGQDown], stream);
  }
  Wgrad(QSize(s), ctx.tensor(args::kWQGrad),
        HasQueryLatent(s) ? ctx.tensor(args::kWQNormed) : xn,
        ctx.grads[args::kGQ], stream);
  const Grad& down = ctx.grads[args::kGKvDown];
  Wgrad(KvLatentSize(s), ctx.tensor(args::kWKvLatentGrad), xn, down, stream);
  Wgrad(KRopeSize(s), ctx.tensor(args::kWKRopeGrad), xn,
        Behind(down, KRopeOffset(s)), stream);
  Wgrad(KvUpSize(s), ctx.tensor(args::kWKvGrad), ctx.tensor(args::kWKvNormed),
        ctx.grads[args::kGKvUp], stream);
  Wgrad(OutSize(s), ctx.tensor(args::kWBranchGrad), ctx.tensor(args::kWAttnOut),
        ctx.grads[args::kGOut], stream);
  return absl::OkStatus();
}

int64_t MlaForwardScratch(const model::Shape& shape) {
  return ops::AttentionForwardScratchElements(AttentionShapeOf(shape));
}

int64_t MlaDgradScratch(const model::Shape& shape) {
  return ops::AttentionBackwardScratchElements(AttentionShapeOf(shape));
}

}  // namespace weft::layers
