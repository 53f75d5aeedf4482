#include "worker/layers/gathered.h"

#include "base/status_macros.h"
#include "kernels/ops/permute/permute.h"
#include "model/decoder.h"

namespace weft::layers::gathered {
namespace {

// recv[r] = rank r's [elements]
absl::Status Gather(const NodeContext& ctx, const device::ConstTensor& send,
                    const device::Tensor& recv, int64_t elements,
                    device::Stream& stream) {
  return ctx.ep->AllGather(send.data, recv.data, elements * SizeOf(send.dtype),
                           stream, ctx.tag);
}

// recv[r] = what rank r has for this rank; `elements` from each to each.
absl::Status SendHome(const NodeContext& ctx, const device::ConstTensor& send,
                      const device::Tensor& recv, int64_t elements,
                      device::Stream& stream) {
  const int ranks = static_cast<int>(ctx.shape->ep);
  const int64_t bytes = elements * SizeOf(send.dtype);
  for (int peer = 0; peer < ranks; ++peer) {
    comm::Segment& sent = ctx.workspace.sends[peer];
    sent.peer = peer;
    sent.offset = peer * bytes;
    sent.bytes = bytes;
    comm::Segment& received = ctx.workspace.receives[peer];
    received = sent;
    received.peer_offset = ctx.ep_rank * bytes;
  }
  return ctx.ep->AllToAllV(
      send.data, absl::MakeConstSpan(ctx.workspace.sends, ranks), recv.data,
      absl::MakeConstSpan(ctx.workspace.receives, ranks), stream, ctx.tag);
}

// out[t] = the sum of the rows that this rank's experts have of token t of the
// group.
void SumOwnRows(const NodeContext& ctx, const device::ConstTensor& rows,
                const int32_t* sorted_rows, const int32_t* sorted_experts,
                const device::Tensor& out, device::Stream& stream) {
  const model::Shape& s = *ctx.shape;
  ops::CombineRowsArgs sum;
  sum.tokens = s.group_tokens();
  sum.topk = s.top_k;
  sum.hidden = s.hidden;
  sum.experts_per_rank = s.local_experts();
  sum.rows = rows;
  sum.sorted_rows = sorted_rows;
  sum.sorted_experts = sorted_experts;
  sum.out = out;
  ops::CombineRows(sum, stream);
}

// out[r] = src[token_of_row[r]] for the rows of this rank's experts.
void PickRows(const NodeContext& ctx, const device::ConstTensor& src,
              const int32_t* token_of_row, const int64_t* offsets,
              const device::Tensor& out, device::Stream& stream) {
  ops::GatherRowsArgs pick;
  pick.rows = ctx.shape->max_received_rows();
  pick.hidden = ctx.shape->hidden;
  pick.src = src;
  pick.index = token_of_row;
  pick.out = out;
  pick.row_count = offsets + ctx.shape->local_experts();
  ops::GatherRows(pick, stream);
}

absl::Status DispatchRows(const NodeContext& ctx, device::Stream& stream) {
  namespace args = model::dispatch;
  const model::Shape& s = *ctx.shape;
  RETURN_IF_ERROR(Gather(ctx, ctx.tensor(args::kSendRows),
                         ctx.tensor(args::kAllRows), s.tokens * s.hidden,
                         stream));
  PickRows(ctx, ctx.tensor(args::kAllRows), ctx.i32(args::kTokenOfRow),
           ctx.i64(args::kOffsets), ctx.tensor(args::kRows), stream);
  return absl::OkStatus();
}

absl::Status DispatchProbabilities(const NodeContext& ctx,
                                   device::Stream& stream) {
  namespace args = model::dispatch;
  const model::Shape& s = *ctx.shape;
  RETURN_IF_ERROR(Gather(ctx, ctx.f32(args::kSendProb), ctx.f32(args::kAllProb),
                         s.slots(), stream));
  ops::GatherElementsArgs pick;
  pick.count = s.max_received_rows();
  pick.src = ctx.f32(args::kAllProb);
  pick.index = ctx.i32(args::kSlotOfRow);
  pick.out = ctx.f32(args::kProb);
  pick.row_count = ctx.i64(args::kOffsets) + s.local_experts();
  ops::GatherElements(pick, stream);
  return absl::OkStatus();
}

}  // namespace

absl::Status CountsForward(const NodeContext& ctx, device::Stream& stream) {
  namespace args = model::counts;
  const model::Shape& s = *ctx.shape;
  RETURN_IF_ERROR(Gather(ctx, ctx.tensor(args::kLocal), ctx.tensor(args::kAll),
                         s.experts, stream));
  RETURN_IF_ERROR(Gather(ctx, ctx.tensor(args::kTopKIndex),
                         ctx.tensor(args::kAllIndex), s.slots(), stream));
  ops::BuildPermutationArgs build;
  build.tokens = s.group_tokens();
  build.topk = s.top_k;
  build.num_experts = s.local_experts();
  build.topk_index = ctx.i32(args::kAllIndex);
  build.offsets = ctx.i64(args::kOffsets);
  build.row_of_slot = ctx.i32(args::kRowOfSlot);
  build.slot_of_row = ctx.i32(args::kSlotOfRow);
  build.token_of_row = ctx.i32(args::kTokenOfRow);
  build.sorted_rows = ctx.i32(args::kSortedRows);
  build.sorted_experts = ctx.i32(args::kSortedExperts);
  build.first_expert = ctx.ep_rank * s.local_experts();
  build.rows = s.max_received_rows();
  ops::BuildPermutation(build, stream);
  return absl::OkStatus();
}

absl::Status DispatchForward(const NodeContext& ctx, device::Stream& stream) {
  namespace args = model::dispatch;
  if (ctx.Runs(args::kRowsStep)) RETURN_IF_ERROR(DispatchRows(ctx, stream));
  if (!ctx.Runs(args::kProbStep)) return absl::OkStatus();
  return DispatchProbabilities(ctx, stream);
}

absl::Status DispatchDgrad(const NodeContext& ctx, device::Stream& stream) {
  namespace args = model::dispatch;
  const model::Shape& s = *ctx.shape;
  SumOwnRows(ctx, ctx.tensor(args::kDRowsGrad), ctx.i32(args::kDSortedRows),
             ctx.i32(args::kDSortedExperts), ctx.tensor(args::kDPartial),
             stream);
  RETURN_IF_ERROR(SendHome(ctx, ctx.tensor(args::kDPartial),
                           ctx.tensor(args::kDSendRowsGrad),
                           s.tokens * s.hidden, stream));
  ops::GatherElementsArgs of_slots;
  of_slots.count = s.ep * s.slots();
  of_slots.src = ctx.f32(args::kDProbGrad);
  of_slots.index = ctx.i32(args::kDRowOfSlot);
  of_slots.out = ctx.f32(args::kDPartialProb);
  ops::GatherElements(of_slots, stream);
  return SendHome(ctx, ctx.f32(args::kDPartialProb),
                  ctx.f32(args::kDSendProbGrad), s.slots(), stream);
}

absl::Status PartialSumsBack(const NodeContext& ctx, device::Stream& stream) {
  namespace args = model::combine;
  SumOwnRows(ctx, ctx.tensor(args::kOut), ctx.i32(args::kGroupRows),
             ctx.i32(args::kGroupExperts), ctx.tensor(args::kPartial), stream);
  return SendHome(ctx, ctx.tensor(args::kPartial), ctx.tensor(args::kBack),
                  ctx.shape->tokens * ctx.shape->hidden, stream);
}

absl::Status CombineDgrad(const NodeContext& ctx, const device::ConstTensor& dy,
                          device::Stream& stream) {
  namespace args = model::combine;
  const model::Shape& s = *ctx.shape;
  RETURN_IF_ERROR(
      Gather(ctx, dy, ctx.tensor(args::kDBack), s.tokens * s.hidden, stream));
  PickRows(ctx, ctx.tensor(args::kDBack), ctx.i32(args::kDTokenOfRow),
           ctx.i64(args::kDOffsets), ctx.tensor(args::kDOutGrad), stream);
  return absl::OkStatus();
}

}  // namespace weft::layers::gathered
