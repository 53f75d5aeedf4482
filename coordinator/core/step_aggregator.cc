#include "coordinator/core/step_aggregator.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

uint64_t Bits(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Ranks that hold another value than rank 0, as an error; to the bit, so that
// NaN equals NaN.
absl::Status CheckEqual(const std::vector<v1::StepMetrics>& by_rank,
                        const char* name,
                        double (v1::StepMetrics::*field)() const) {
  const double expected = (by_rank[0].*field)();
  std::vector<std::string> differing;
  for (size_t rank = 1; rank < by_rank.size(); ++rank) {
    const double value = (by_rank[rank].*field)();
    if (Bits(value) == Bits(expected)) continue;
    differing.push_back(absl::StrFormat("rank %d has %.17g", rank, value));
  }
  if (differing.empty()) return absl::OkStatus();
  if (differing.size() > 8) {
    const size_t more = differing.size() - 8;
    differing.resize(8);
    differing.push_back(absl::StrCat(more, " more ranks differ"));
  }
  return absl::InternalError(absl::StrFormat(
      "step %d: %s differs between ranks: rank 0 has %.17g, %s",
      by_rank[0].step(), name, expected, absl::StrJoin(differing, ", ")));
}

// Elementwise; ranks of a job have the same layers with experts.
void RaiseImbalances(const v1::StepMetrics& one, v1::StepMetrics& all) {
  all.set_expert_imbalance(
      std::max(all.expert_imbalance(), one.expert_imbalance()));
  const int layers =
      std::min(all.layer_imbalances_size(), one.layer_imbalances_size());
  for (int i = 0; i < layers; ++i) {
    all.set_layer_imbalances(
        i, std::max(all.layer_imbalances(i), one.layer_imbalances(i)));
  }
}

int64_t BytesOf(const v1::StepMetrics& metrics) {
  int64_t bytes = 0;
  for (const v1::MemoryUse& use : metrics.memory()) bytes += use.bytes();
  return bytes;
}

v1::StepMetrics Combine(const std::vector<v1::StepMetrics>& by_rank) {
  v1::StepMetrics all = by_rank[0];
  for (size_t rank = 1; rank < by_rank.size(); ++rank) {
    const v1::StepMetrics& one = by_rank[rank];
    all.set_step_seconds(std::max(all.step_seconds(), one.step_seconds()));
    all.set_ep_seconds(all.ep_seconds() + one.ep_seconds());
    all.set_ep_exposed_seconds(all.ep_exposed_seconds() +
                               one.ep_exposed_seconds());
    all.set_ep_wire_bytes(all.ep_wire_bytes() + one.ep_wire_bytes());
    all.set_fsdp_seconds(all.fsdp_seconds() + one.fsdp_seconds());
    all.set_fsdp_exposed_seconds(all.fsdp_exposed_seconds() +
                                 one.fsdp_exposed_seconds());
    all.set_peak_device_bytes(
        std::max(all.peak_device_bytes(), one.peak_device_bytes()));
    all.set_elapsed_seconds(
        std::max(all.elapsed_seconds(), one.elapsed_seconds()));
    all.set_launch_seconds(
        std::max(all.launch_seconds(), one.launch_seconds()));
    all.set_host_waits(std::max(all.host_waits(), one.host_waits()));
    all.set_allocations(std::max(all.allocations(), one.allocations()));
    for (int s = 0; s < all.streams_size() && s < one.streams_size(); ++s) {
      v1::StreamTime& stream = *all.mutable_streams(s);
      stream.set_busy_seconds(
          std::max(stream.busy_seconds(), one.streams(s).busy_seconds()));
    }
    all.set_gather_seconds(all.gather_seconds() + one.gather_seconds());
    all.set_gather_exposed_seconds(all.gather_exposed_seconds() +
                                   one.gather_exposed_seconds());
    RaiseImbalances(one, all);
    if (BytesOf(one) > BytesOf(all)) *all.mutable_memory() = one.memory();
  }
  const double world = by_rank.size();
  all.set_ep_seconds(all.ep_seconds() / world);
  all.set_ep_exposed_seconds(all.ep_exposed_seconds() / world);
  all.set_fsdp_seconds(all.fsdp_seconds() / world);
  all.set_fsdp_exposed_seconds(all.fsdp_exposed_seconds() / world);
  all.set_gather_seconds(all.gather_seconds() / world);
  all.set_gather_exposed_seconds(all.gather_exposed_seconds() / world);
  return all;
}

}  // namespace

absl::StatusOr<std::optional<v1::StepMetrics>> StepAggregator::Add(
    int rank, const v1::StepMetrics& metrics) {
  const int64_t step = metrics.step();
  if (step != next_step_[rank]) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " reported step ", step, " where step ",
                     next_step_[rank], " was due"));
  }
  ++next_step_[rank];
  Reports& reports = pending_[step];
  reports.by_rank.resize(next_step_.size());
  reports.by_rank[rank] = metrics;
  if (++reports.count < static_cast<int>(next_step_.size())) {
    return std::optional<v1::StepMetrics>();
  }
  const std::vector<v1::StepMetrics> by_rank = std::move(reports.by_rank);
  pending_.erase(step);
  RETURN_IF_ERROR(CheckEqual(by_rank, "loss", &v1::StepMetrics::loss));
  RETURN_IF_ERROR(
      CheckEqual(by_rank, "grad_norm", &v1::StepMetrics::grad_norm));
  RETURN_IF_ERROR(
      CheckEqual(by_rank, "objective", &v1::StepMetrics::objective));
  return std::optional<v1::StepMetrics>(Combine(by_rank));
}

}  // namespace weft::coordinator
