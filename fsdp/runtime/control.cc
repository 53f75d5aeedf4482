#include "fsdp/runtime/control.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/ops/elementwise/elementwise.h"
#include "kernels/ops/sum_squares/sum_squares.h"
#include "kernels/ops/weighted_sum/weighted_sum.h"

namespace weft::fsdp {
namespace {

// Copies doubles as they are.
void CopyDoubles(const double* from, int64_t count, double* to,
                 device::Stream& stream) {
  ops::CopyArgs copy;
  copy.count = count * sizeof(double) / sizeof(float);
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
  sum.count = layout.router_losses;
  for (int m = 0; m < layout.microbatches; ++m) {
    sum.x = work.objective_losses.data() + m * layout.router_losses;
    sum.weights = work.objective_weights.data() + m * layout.router_losses;
    sum.out = work.record + layout.router_objective(m);
    ops::WeightedSum(sum, stream);
  }
}

// The mean loss of a depth in one microbatch; without labels 0.
double DepthMean(const double* records, int ranks, const ControlRecord& layout,
                 int depth, int microbatch) {
  double loss = 0;
  double labels = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const double* record = records + rank * layout.doubles();
    loss += record[layout.depth_loss(depth, microbatch)];
    labels += record[layout.depth_tokens(depth, microbatch)];
  }
  return loss / std::max(labels, 1.0);
}

// Sums the losses and tokens of one microbatch over ranks.
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
    RouterShare& share = totals->router_shares[microbatch];
    share.objective += record[layout.router_objective(microbatch)];
    share.valid_tokens += record[layout.valid_tokens(microbatch)];
  }
  totals->loss_tokens += tokens;
  totals->microbatch_loss += loss / std::max(tokens, 1.0) / layout.microbatches;
  for (int k = 0; k < layout.depths; ++k) {
    const double mean = DepthMean(records, ranks, layout, k, microbatch);
    totals->depth_losses[k] += mean / layout.microbatches;
    totals->depth_token_loss += tokens * mean;
  }
}

}  // namespace

double ControlTotals::depth_loss_sum() const {
  return std::accumulate(depth_losses.begin(), depth_losses.end(), 0.0);
}

absl::Status ExchangeControl(const ControlWork& work, device::Stream& stream) {
  SumSlices(work, stream);
  for (size_t m = 0; m < work.losses.size(); ++m) {
    CopyDoubles(work.losses[m], 1, work.record + work.layout.loss(m), stream);
  }
  int64_t expert = 0;
  for (const CountsView& counts : work.expert_counts) {
    CopyDoubles(counts.data, counts.count,
                work.record + work.layout.expert_count(expert), stream);
    expert += counts.count;
  }
  for (size_t i = 0; i < work.depth_losses.size(); ++i) {
    const int depth = static_cast<int>(i) / work.layout.microbatches;
    const int m = static_cast<int>(i) % work.layout.microbatches;
    CopyDoubles(work.depth_losses[i], 1,
                work.record + work.layout.depth_loss(depth, m), stream);
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
  std::vector<double> expert_counts = std::move(totals->expert_counts);
  std::vector<RouterShare> shares = std::move(totals->router_shares);
  std::vector<double> depth_losses = std::move(totals->depth_losses);
  shares.assign(layout.microbatches, RouterShare());
  router_losses.assign(layout.router_losses, 0.0);
  expert_counts.assign(layout.expert_counts, 0.0);
  depth_losses.assign(layout.depths, 0.0);
  *totals = {};
  totals->router_losses = std::move(router_losses);
  totals->expert_counts = std::move(expert_counts);
  totals->router_shares = std::move(shares);
  totals->depth_losses = std::move(depth_losses);
  double squares = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const double* record = records + rank * stride;
    squares += record[ControlRecord::kSquares];
    totals->tokens += record[ControlRecord::kTokens];
    const int64_t word = static_cast<int64_t>(record[ControlRecord::kWord]);
    totals->word = rank == 0 ? word : std::max(totals->word, word);
    for (int i = 0; i < layout.router_losses; ++i) {
      totals->router_losses[i] += record[layout.router_loss(i)];
    }
    for (int64_t e = 0; e < layout.expert_counts; ++e) {
      totals->expert_counts[e] += record[layout.expert_count(e)];
    }
  }
  for (int m = 0; m < layout.microbatches; ++m) {
    AddMicrobatch(records, ranks, layout, m, totals);
  }
  totals->depth_token_loss /= std::max(totals->loss_tokens, 1.0);
  totals->norm = std::sqrt(squares);
}

}  // namespace weft::fsdp
