// The input of a depth of multi-token prediction:
// y = projection [enorm(embedding of further tokens), hnorm(final norm of x)],
// a product for each half: in bf16 y is rounded after each.
#include "kernels/ops/embedding/embedding.h"
#include "kernels/ops/gemm/gemm.h"
#include "model/decoder.h"
#include "worker/layers/linear.h"
#include "worker/layers/nodes.h"

namespace weft::layers {
namespace {

namespace args = model::mtp_input;
using device::ConstTensor;
using device::Tensor;

// Products with one half of the projection's columns: the embedding's, `half`
// 0, or the state's, 1.
ops::GemmArgs HalfProduct(const model::Shape& s, bool accumulate) {
  ops::GemmArgs gemm;
  gemm.m = s.tokens;
  gemm.n = s.hidden;
  gemm.k = s.hidden;
  gemm.accumulate = accumulate;
  return gemm;
}

void ForwardHalf(const model::Shape& s, const ConstTensor& x,
                 const ConstTensor& projection, int half, const Tensor& y,
                 device::Stream& stream) {
  ops::GemmArgs gemm = HalfProduct(s, /*accumulate=*/half == 1);
  gemm.transpose_b = true;
  gemm.a = x;
  gemm.b = projection + half * s.hidden;
  gemm.ldb = 2 * s.hidden;
  gemm.c = y;
  ops::Gemm(gemm, stream);
}

void DgradHalf(const model::Shape& s, const ConstTensor& dy,
               const ConstTensor& projection, int half, const Tensor& dx,
               device::Stream& stream) {
  ops::GemmArgs gemm = HalfProduct(s, /*accumulate=*/false);
  gemm.a = dy;
  gemm.b = projection + half * s.hidden;
  gemm.ldb = 2 * s.hidden;
  gemm.c = dx;
  ops::Gemm(gemm, stream);
}

void WgradHalf(const model::Shape& s, const ConstTensor& dy,
               const ConstTensor& x, int half, const Grad& grad,
               device::Stream& stream) {
  ops::GemmArgs gemm;
  gemm.transpose_a = true;
  gemm.m = s.hidden;
  gemm.n = s.hidden;
  gemm.k = s.tokens;
  gemm.accumulate = grad.accumulate;
  gemm.a = dy;
  gemm.b = x;
  gemm.c = grad.data + half * s.hidden;
  gemm.ldc = 2 * s.hidden;
  ops::Gemm(gemm, stream);
}

}  // namespace

absl::Status MtpInputForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  ops::EmbeddingForwardArgs lookup;
  lookup.tokens = s.tokens;
  lookup.vocab = s.vocab;
  lookup.hidden = s.hidden;
  lookup.ids = ctx.i32(args::kTokens);
  lookup.table = ctx.params[args::kTable];
  lookup.out = ctx.tensor(args::kEmbedding);
  lookup.factor = static_cast<float>(s.embedding_multiplier);
  ops::EmbeddingForward(lookup, stream);
  NormForward(s, ctx.tensor(args::kEmbedding), ctx.params[args::kENorm],
              ctx.tensor(args::kEmbeddingNorm), ctx.f32(args::kEmbeddingRstd),
              stream);
  NormForward(s, ctx.tensor(args::kX), ctx.params[args::kFinalNorm],
              ctx.tensor(args::kState), ctx.f32(args::kRstd), stream);
  NormForward(s, ctx.tensor(args::kState), ctx.params[args::kHNorm],
              ctx.tensor(args::kStateNorm), ctx.f32(args::kStateRstd), stream);
  const ConstTensor& projection = ctx.params[args::kProjection];
  ForwardHalf(s, ctx.tensor(args::kEmbeddingNorm), projection, 0,
              ctx.tensor(args::kY), stream);
  ForwardHalf(s, ctx.tensor(args::kStateNorm), projection, 1,
              ctx.tensor(args::kY), stream);
  return absl::OkStatus();
}

absl::Status MtpInputDgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  const ConstTensor& projection = ctx.params[args::kProjection];
  const Tensor& scratch = ctx.tensor(args::kDScratch);
  DgradHalf(s, ctx.tensor(args::kDDy), projection, 0, scratch, stream);
  NormBackwardArgs embedding;
  embedding.x = ctx.tensor(args::kDEmbedding);
  embedding.weight = ctx.params[args::kENorm];
  embedding.rstd = ctx.f32(args::kDEmbeddingRstd);
  embedding.dy = scratch;
  embedding.dx = ctx.tensor(args::kDEmbeddingGrad);
  embedding.dweight = ctx.grads[args::kGENorm];
  NormBackward(s, embedding, stream);

  DgradHalf(s, ctx.tensor(args::kDDy), projection, 1, scratch, stream);
  NormBackwardArgs state;
  state.x = ctx.tensor(args::kDState);
  state.weight = ctx.params[args::kHNorm];
  state.rstd = ctx.f32(args::kDStateRstd);
  state.dy = scratch;
  state.dx = scratch;
  state.dweight = ctx.grads[args::kGHNorm];
  NormBackward(s, state, stream);
  NormBackwardArgs final;
  final.x = ctx.tensor(args::kDX);
  final.weight = ctx.params[args::kFinalNorm];
  final.rstd = ctx.f32(args::kDRstd);
  final.dy = scratch;
  final.add = ctx.tensor(args::kDHeadGrad);
  final.dx = ctx.tensor(args::kDDx);
  final.dweight = ctx.grads[args::kGFinalNorm];
  NormBackward(s, final, stream);
  return absl::OkStatus();
}

absl::Status MtpInputWgrad(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  const Grad& projection = ctx.grads[args::kGProjection];
  if (projection.data != nullptr) {
    WgradHalf(s, ctx.tensor(args::kWDy), ctx.tensor(args::kWEmbeddingNorm), 0,
              projection, stream);
    WgradHalf(s, ctx.tensor(args::kWDy), ctx.tensor(args::kWStateNorm), 1,
              projection, stream);
  }
  const Grad& table = ctx.grads[args::kGTable];
  if (table.data == nullptr) return absl::OkStatus();
  ops::EmbeddingBackwardArgs sum;
  sum.tokens = s.tokens;
  sum.vocab = s.vocab;
  sum.hidden = s.hidden;
  sum.ids = ctx.i32(args::kWTokens);
  sum.d_out = ctx.tensor(args::kWEmbeddingGrad);
  sum.scratch = ctx.i32(args::kWScratch);
  sum.d_table = table.data;
  sum.accumulate = table.accumulate;
  sum.factor = static_cast<float>(s.embedding_multiplier);
  sum.untrained_id = s.padding_token;
  ops::EmbeddingBackward(sum, stream);
  return absl::OkStatus();
}

}  // namespace weft::layers
