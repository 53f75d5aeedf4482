#include "client/bench.h"

#include <algorithm>

#include "absl/status/status.h"
#include "schedule/flops.h"
#include "schedule/plan.h"

namespace weft::client {
namespace {

using Json = nlohmann::ordered_json;
using Metrics = v1::StepMetrics;

double Median(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  return values[middle];
}

Json StreamsOf(absl::Span<const Metrics> steps) {
  Json streams = Json::object();
  for (int s = 0; s < steps.front().streams_size(); ++s) {
    std::vector<double> busy;
    for (const Metrics& step : steps) {
      if (s < step.streams_size()) {
        busy.push_back(step.streams(s).busy_seconds());
      }
    }
    streams[steps.front().streams(s).stream()] = Median(std::move(busy));
  }
  return streams;
}

// Of what was busy, the part in which the compute stream ran something.
Json Overlapped(double busy, double exposed) {
  return busy > 0 ? Json(1 - exposed / busy) : Json(nullptr);
}

Json MemoryOf(const v1::MemoryPlan& memory) {
  return {{"parameters", memory.parameters()},
          {"main_weights", memory.main_weights()},
          {"gradients", memory.gradients()},
          {"optimizer", memory.optimizer()},
          {"static_values", memory.static_values()},
          {"routed_values_bound", memory.routed_values()}};
}

void AddSpeed(const BenchSteps& measured, Json& report) {
  const schedule::Plan plan = schedule::Declare(measured.job);
  const schedule::TokenFlops flops = schedule::TrainingFlopsOf(plan.shape);
  const double seconds = MedianOf(measured.steps, &Metrics::step_seconds);
  const double tokens = measured.steps.front().tokens();
  const double rate = tokens / seconds / plan.world.size;
  std::vector<double> all;
  for (const Metrics& step : measured.steps) all.push_back(step.step_seconds());
  const auto [least, most] = std::minmax_element(all.begin(), all.end());
  report["tokens_per_second_per_gpu"] = rate;
  report["model_tflops_per_gpu"] = rate * flops.total() * 1e-12;
  report["flops_per_token"] = flops.total();
  report["flop_formula"] = schedule::DescribeFlops(flops);
  report["tokens_per_step"] = tokens;
  report["step_seconds"] = {
      {"median", seconds}, {"min", *least}, {"max", *most}};
}

Json HeldOf(const Metrics& step) {
  Json held = Json::object();
  for (const v1::MemoryUse& use : step.memory()) {
    held[use.category()] = use.bytes();
  }
  return held;
}

double HostWaits(const Metrics& step) { return step.host_waits(); }
double Allocations(const Metrics& step) { return step.allocations(); }

double Most(absl::Span<const Metrics> steps, double (*field)(const Metrics&)) {
  double most = 0;
  for (const Metrics& step : steps) most = std::max(most, field(step));
  return most;
}

}  // namespace

double MedianOf(absl::Span<const Metrics> steps,
                double (Metrics::*field)() const) {
  std::vector<double> values;
  for (const Metrics& step : steps) values.push_back((step.*field)());
  return Median(std::move(values));
}

absl::StatusOr<HiddenShare> HiddenShareOf(const BenchSteps& normal,
                                          const BenchSteps& left_out,
                                          const BenchSteps& alone) {
  HiddenShare hidden;
  hidden.step = MedianOf(normal.steps, &Metrics::step_seconds);
  hidden.without = MedianOf(left_out.steps, &Metrics::step_seconds);
  hidden.alone = MedianOf(alone.steps, &Metrics::step_seconds);
  if (hidden.alone > 0) return hidden;
  return absl::FailedPreconditionError(
      "the all-to-alls took no time, so there is nothing to hide");
}

Json Report(const BenchSteps& measured, const v1::MemoryPlan& memory) {
  const absl::Span<const Metrics> steps = measured.steps;
  Json report;
  report["job"] = measured.job.name();
  report["world"] = measured.job.parallel().world();
  report["ep"] = std::max(1, measured.job.parallel().ep());
  report["routing"] =
      measured.job.bench().balanced_routing() ? "balanced" : "natural";
  report["steps"] = steps.size();
  AddSpeed(measured, report);
  report["stream_busy_seconds"] = StreamsOf(steps);
  const double ep = MedianOf(steps, &Metrics::ep_seconds);
  const double fsdp = MedianOf(steps, &Metrics::fsdp_seconds);
  report["ep_overlapped_share"] =
      Overlapped(ep, MedianOf(steps, &Metrics::ep_exposed_seconds));
  report["fsdp_overlapped_share"] =
      Overlapped(fsdp, MedianOf(steps, &Metrics::fsdp_exposed_seconds));
  report["ep_wire_bytes"] = steps.back().ep_wire_bytes();
  report["host_launch_seconds"] = MedianOf(steps, &Metrics::launch_seconds);
  report["host_waits_in_a_step"] = Most(steps, &HostWaits);
  report["allocations_in_a_step"] = Most(steps, &Allocations);
  report["peak_device_bytes"] = steps.back().peak_device_bytes();
  report["memory_bytes"] = MemoryOf(memory);
  report["device_memory_bytes"] = HeldOf(steps.back());
  report["expert_imbalance"] = MedianOf(steps, &Metrics::expert_imbalance);
  return report;
}

}  // namespace weft::client
