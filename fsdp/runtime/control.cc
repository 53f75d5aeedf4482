#include "fsdp/runtime/control.h"

#include <algorithm>
#include <cmath>

#include "kernels/ops/elementwise/elementwise.h"
#include "kernels/ops/sum_squares/sum_squares.h"

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

}  // namespace

absl::Status ExchangeControl(const ControlWork& work, device::Stream& stream) {
  SumSlices(work, stream);
  for (size_t m = 0; m < work.losses.size(); ++m) {
    CopyDouble(work.losses[m], work.record + ControlRecord::kLosses + m,
               stream);
  }
  const int64_t bytes = ControlRecord::Doubles(work.losses.size()) *
                        static_cast<int64_t>(sizeof(double));
  return work.comm->AllGather(work.record, work.records, bytes, stream,
                              work.tag);
}

ControlTotals SumControl(const double* records, int ranks, int microbatches) {
  const int64_t stride = ControlRecord::Doubles(microbatches);
  ControlTotals totals;
  double squares = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const double* record = records + rank * stride;
    squares += record[ControlRecord::kSquares];
    totals.tokens += record[ControlRecord::kTokens];
    const int64_t word = static_cast<int64_t>(record[ControlRecord::kWord]);
    totals.word = rank == 0 ? word : std::max(totals.word, word);
  }
  for (int m = 0; m < microbatches; ++m) {
    for (int rank = 0; rank < ranks; ++rank) {
      totals.loss_sum += records[rank * stride + ControlRecord::kLosses + m];
    }
  }
  totals.norm = std::sqrt(squares);
  return totals;
}

}  // namespace weft::fsdp
