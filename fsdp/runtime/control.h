// The control collective: one all-gather of doubles over all ranks that makes
// every rank know the step's gradient norm, loss and the largest control word.
//
// The norm is taken per slice in fp64 and summed in rank order, from the same
// slices whatever the strategy, so all ranks and strategies get equal bits.
#ifndef WEFT_FSDP_RUNTIME_CONTROL_H_
#define WEFT_FSDP_RUNTIME_CONTROL_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"
#include "kernels/device/tensor.h"

namespace weft::fsdp {

// What one rank contributes, as doubles: the sum of squares of its slices, its
// control word, its tokens; for every microbatch the sum of its token losses,
// how many tokens those are, how many are valid, and its share of the weighted
// router losses; its share of every router loss, as the mean over microbatches;
// the tokens that experts with a bias kept in the step; for every depth of
// multi-token prediction and every microbatch the sum of its token losses, and
// how many tokens those are.
struct ControlRecord {
  static constexpr int kSquares = 0;
  static constexpr int kWord = 1;
  static constexpr int kTokens = 2;
  static constexpr int kLosses = 3;

  int microbatches = 0;
  int router_losses = 0;
  int64_t expert_counts = 0;
  int depths = 0;

  int64_t loss(int microbatch) const { return kLosses + microbatch; }
  int64_t loss_tokens(int microbatch) const {
    return loss(microbatches) + microbatch;
  }
  int64_t valid_tokens(int microbatch) const {
    return loss_tokens(microbatches) + microbatch;
  }
  int64_t router_objective(int microbatch) const {
    return valid_tokens(microbatches) + microbatch;
  }
  int64_t router_loss(int index) const {
    return router_objective(microbatches) + index;
  }
  int64_t expert_count(int64_t index) const {
    return router_loss(router_losses) + index;
  }
  int64_t depth_loss(int depth, int microbatch) const {
    return expert_count(expert_counts) + 2 * depth * microbatches + microbatch;
  }
  int64_t depth_tokens(int depth, int microbatch) const {
    return depth_loss(depth, microbatches) + microbatch;
  }
  int64_t doubles() const { return depth_loss(depths, 0); }
};

// Gradients of this rank's slice of one bucket.
struct SliceView {
  device::ConstTensor data;
  int64_t elements = 0;
};

// Counts of experts, f64[count], in memory that the device can reach.
struct CountsView {
  const double* data = nullptr;
  int64_t count = 0;
};

struct ControlWork {
  comm::Communicator* comm = nullptr;
  ControlRecord layout;
  absl::Span<const SliceView> slices;  // none: the norm is 0
  // Memory that the device can reach.
  absl::Span<const double* const> losses;  // by microbatch
  // By depth, then by microbatch.
  absl::Span<const double* const> depth_losses;
  // By router loss, then by microbatch.
  absl::Span<const double* const> router_losses;
  // Of a router loss in the mean over microbatches, by microbatch.
  absl::Span<const double> mean_weights;
  // The same by microbatch, then by router loss, and what each weighs in the
  // objective.
  absl::Span<const double* const> objective_losses;
  absl::Span<const double> objective_weights;
  absl::Span<const CountsView> expert_counts;  // all of the record
  // Host memory the device can reach. Word and all numbers of tokens in
  // `record` are filled by the host before the launch.
  double* record = nullptr;   // [doubles]
  double* records = nullptr;  // [comm->size(), doubles]
  comm::CollectiveTag tag;
};
// Called from work on `stream`.
absl::Status ExchangeControl(const ControlWork& work, device::Stream& stream);

// Of one microbatch: the weighted router losses, and the tokens that they are
// means over.
struct RouterShare {
  double objective = 0;
  double valid_tokens = 0;
};

// What all ranks agree on.
struct ControlTotals {
  double norm = 0;
  double tokens = 0;
  int64_t word = 0;
  double loss_sum = 0;
  double loss_tokens = 0;  // whose losses that sum counts
  // The mean over microbatches of a microbatch's mean loss; a microbatch that
  // counts no token has loss 0.
  double microbatch_loss = 0;
  std::vector<RouterShare> router_shares;  // by microbatch
  std::vector<double> router_losses;       // means over microbatches
  std::vector<double> expert_counts;
  // Of each depth the mean over microbatches of the mean over its labels, and
  // what those of all depths add up to when each microbatch weighs as many
  // tokens as its other loss counts.
  std::vector<double> depth_losses;
  double depth_token_loss = 0;

  double depth_loss_sum() const;

  // The mean over the tokens that count.
  double token_loss() const {
    return loss_tokens > 0 ? loss_sum / loss_tokens : 0;
  }
};
// Reads the gathered records on the host. Losses are summed by microbatch, then
// by rank, ascending. Allocates only where `totals` has not seen this layout.
void SumControl(const double* records, int ranks, const ControlRecord& layout,
                ControlTotals* totals);

}  // namespace weft::fsdp

#endif  // WEFT_FSDP_RUNTIME_CONTROL_H_
