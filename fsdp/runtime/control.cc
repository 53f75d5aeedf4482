#include "fsdp/runtime/control.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/ops/elementwise/elementwise.h"
#include "kernels/ops/sum_squares/sum_squares.h"
#include "kernels/ops/weighted_sum/weighted_sum.h"

namespace weft::fsdp {
namespace {

// Copies one double as it is.
void CopyDouble(const double* from, double* to, device::Stream& stream) {
  ops::CopyArgs copy;
  copy.count = sizeof(double) / sizeof(float);
  copy.x = reinterpret_cast<const float*>(from);
  copy.out = reinterpret_cast<float*>(to);
  ops::Copy(copy, stream);
}

void SumSlices(const ControlWork& work, device::Stream& stream) {
  ops::SumSquaresArgs sum;
  sum.out = work.record + ControlRecord::kSquares;
  ops::SumSquares(sum, stream);  // of nothing: zero
  sum.accumulate = true;
  for (const SliceView& slice : work.slices) {
    sum.count = slice.elements;
    sum.x = slice.data;
    ops::SumSquares(sum, stream);
  }
}

// Means and objective of the router losses.
void SumRouterLosses(const ControlWork& work, device::Stream& stream) {
  const ControlRecord& layout = work.layout;
  ops::WeightedSumArgs sum;
  sum.count = layout.microbatches;
  sum.weights = work.mean_weights.data();
  for (int i = 0; i < layout.router_losses; ++i) {
    sum.x = work.router_losses.data() + i * layout.microbatches;
    sum.out = work.record + layout.router_loss(i);
    ops::WeightedSum(sum, stream);
  }
  sum.count = layout.router_losses * layout.microbatches;
  sum.x = work.router_losses.data();
  sum.weights = work.objective_weights.data();
  sum.out = work.record + ControlRecord::kRouterObjective;
  ops::WeightedSum(sum, stream);
}

// Sums the losses of one microbatch over ranks.
void AddMicrobatch(const double* records, int ranks,
                   const ControlRecord& layout, int microbatch,
                   ControlTotals* totals) {
  double loss = 0;
  double tokens = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const double* record = records + rank * layout.doubles();
    totals->loss_sum += record[layout.loss(microbatch)];
    loss += record[layout.loss(microbatch)];
    tokens += record[layout.loss_tokens(microbatch)];
  }
  totals->loss_tokens += tokens;
  totals->microbatch_loss += loss / std::max(tokens, 1.0) / layout.microbatches;
}

}  // namespace

absl::Status ExchangeControl(const ControlWork& work, device::Stream& stream) {
  SumSlices(work, stream);
  for (size_t m = 0; m < work.losses.size(); ++m) {
    CopyDouble(work.losses[m], work.record + work.layout.loss(m), stream);
  }
  SumRouterLosses(work, stream);
  const int64_t bytes =
      work.layout.doubles() * static_cast<int64_t>(sizeof(double));
  return work.comm->AllGather(work.record, work.records, bytes, stream,
                              work.tag);
}

void SumControl(const double* records, int ranks, const ControlRecord& layout,
                ControlTotals* totals) {
  const int64_t stride = layout.doubles();
  std::vector<double> router_losses = std::move(totals->router_losses);
  router_losses.assign(layout.router_losses, 0.0);
  *totals = {};
  totals->router_losses = std::move(router_losses);
  double squares = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const double* record = records + rank * stride;
    squares += record[ControlRecord::kSquares];
    totals->tokens += record[ControlRecord::kTokens];
    totals->router_objective += record[ControlRecord::kRouterObjective];
    const int64_t word = static_cast<int64_t>(record[ControlRecord::kWord]);
    totals->word = rank == 0 ? word : std::max(totals->word, word);
    for (int i = 0; i < layout.router_losses; ++i) {
      totals->router_losses[i] += record[layout.router_loss(i)];
    }
  }
  for (int m = 0; m < layout.microbatches; ++m) {
    AddMicrobatch(records, ranks, layout, m, totals);
  }
  totals->norm = std::sqrt(squares);
}

}  // namespace weft::fsdp
