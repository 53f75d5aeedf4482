// Rows that each expert gets over all ranks, and the balancing losses that need
// them.
#include "base/status_macros.h"
#include "kernels/ops/elementwise/elementwise.h"
#include "kernels/ops/router_loss/router_loss.h"
#include "model/decoder.h"
#include "worker/layers/nodes.h"
#include "worker/layers/router_loss.h"

namespace weft::layers {
namespace {

namespace args = model::balance;

// running = previous + total
void AddToRunning(const NodeContext& ctx, device::Stream& stream) {
  const int64_t columns = ctx.shape->balance_columns();
  const float* previous = ctx.f32(args::kPrevious);
  float* running = ctx.f32(args::kRunning);
  if (previous == nullptr) {
    ops::Copy({columns, ctx.f32(args::kTotal), running}, stream);
  } else {
    ops::Add({columns, previous, ctx.f32(args::kTotal), running}, stream);
  }
}

}  // namespace

absl::Status BalanceForward(const NodeContext& ctx, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  float* total = ctx.f32(args::kTotal);
  ops::CountsToFloats(
      {s.experts, s.balance_columns(), ctx.i32(args::kCounts), total}, stream);
  RETURN_IF_ERROR(ctx.dp->AllReduce(total, s.balance_columns(), DType::kF32,
                                    stream, ctx.tag));
  ops::BalanceLossArgs loss;
  loss.num_experts = s.experts;
  loss.factor = BalanceFactor(s);
  loss.sums = ctx.f64(args::kScoreSums);
  const float* weights = ctx.f32(args::kLossWeights);
  if (weights != nullptr) loss.weight = weights + 2;  // see ops::LossWeights
  if (s.router_loss.aux > 0) {
    loss.counts = total;
    loss.loss = ctx.f64(args::kAux);
    ops::BalanceLoss(loss, stream);
  }
  if (s.router_loss.global_aux > 0) {
    AddToRunning(ctx, stream);
    loss.factor /= ctx.microbatch + 1;
    loss.counts = ctx.f32(args::kRunning);
    loss.loss = ctx.f64(args::kGlobalAux);
    ops::BalanceLoss(loss, stream);
  }
  return absl::OkStatus();
}

}  // namespace weft::layers
