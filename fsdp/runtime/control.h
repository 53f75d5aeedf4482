// The control collective: one all-gather of doubles over all ranks that makes
// every rank know the step's gradient norm, loss and the largest control word.
//
// The norm is taken per slice in fp64 and summed in rank order, from the same
// slices whatever the strategy, so all ranks and strategies get equal bits.
#ifndef WEFT_FSDP_RUNTIME_CONTROL_H_
#define WEFT_FSDP_RUNTIME_CONTROL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"
#include "kernels/device/tensor.h"

namespace weft::fsdp {

// What one rank contributes, as doubles: the sum of squares of its slices, its
// control word, its tokens, then the loss sum of every microbatch.
struct ControlRecord {
  static constexpr int kSquares = 0;
  static constexpr int kWord = 1;
  static constexpr int kTokens = 2;
  static constexpr int kLosses = 3;

  static int64_t Doubles(int microbatches) { return kLosses + microbatches; }
};

// Gradients of this rank's slice of one bucket.
struct SliceView {
  device::ConstTensor data;
  int64_t elements = 0;
};

struct ControlWork {
  comm::Communicator* comm = nullptr;
  absl::Span<const SliceView> slices;      // none: the norm is 0
  absl::Span<const double* const> losses;  // device memory, by microbatch
  // Host memory the device can reach. Word and tokens of `record` are filled by
  // the host before the launch.
  double* record = nullptr;   // [Doubles]
  double* records = nullptr;  // [comm->size(), Doubles]
  comm::CollectiveTag tag;
};
// Called from work on `stream`.
absl::Status ExchangeControl(const ControlWork& work, device::Stream& stream);

// What all ranks agree on.
struct ControlTotals {
  double norm = 0;
  double loss_sum = 0;
  double tokens = 0;
  int64_t word = 0;

  double mean_loss() const { return tokens > 0 ? loss_sum / tokens : 0; }
};
// Reads the gathered records on the host. Losses are summed by microbatch, then
// by rank, ascending.
ControlTotals SumControl(const double* records, int ranks, int microbatches);

}  // namespace weft::fsdp

#endif  // WEFT_FSDP_RUNTIME_CONTROL_H_
