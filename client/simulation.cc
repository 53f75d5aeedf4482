#include "client/simulation.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file/atomic_file.h"
#include "base/status_macros.h"
#include "client/step_trace.h"
#include "schedule/calibrate.h"
#include "schedule/memory_plan.h"
#include "schedule/overlap.h"
#include "schedule/simulate.h"
#include "schedule/trace.h"

namespace weft::client {
namespace {

using schedule::Plan;

// Device bytes of a rank beside the arena.
int64_t BytesBesideArena(const Plan& plan) {
  return schedule::TotalBytes(schedule::PlanMemory(plan)) -
         schedule::LargestProgram(plan).arena_bytes;
}

// Of the rank that needs most.
int64_t PeakArenaBytes(const Plan& plan, const schedule::Simulation& simulated,
                       const std::vector<schedule::RoutedRows>& rows) {
  int64_t peak = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    peak = std::max(peak, schedule::PeakBytes(schedule::MemoryCurve(
                              plan, plan.train, simulated.ranks[r], rows[r])));
  }
  return peak;
}

std::string Seconds(double seconds) {
  return absl::StrFormat("%.6g s", seconds);
}

std::string Transfers(int64_t busy_ns, int64_t exposed_ns) {
  return absl::StrCat(Seconds(busy_ns * 1e-9), ", ", Seconds(exposed_ns * 1e-9),
                      " of it exposed");
}

Record RecordOf(const Plan& plan, const schedule::Simulation& simulated,
                int64_t peak_arena_bytes) {
  const auto& times = simulated.ranks.front();
  const schedule::OverlapTimes overlap = schedule::MeasureOverlap(
      schedule::OpsByStream(plan.train), schedule::ToSpans(times));
  const auto busy = schedule::BusySeconds(plan.train, times);
  Record record;
  record.Add("simulated step", Seconds(simulated.step_seconds));
  record.Add("  compute", Seconds(busy[0]));
  record.Add("  all-to-all", Transfers(overlap.ep_ns, overlap.ep_exposed_ns));
  record.Add("  gather, reduce",
             Transfers(overlap.fsdp_ns, overlap.fsdp_exposed_ns));
  record.Add("  peak device memory",
             HumanBytes(BytesBesideArena(plan) + peak_arena_bytes));
  return record;
}

double RelativeError(double predicted, double measured) {
  return (predicted - measured) / measured;
}

}  // namespace

double Comparison::seconds_error() const {
  return RelativeError(predicted_seconds, measured_seconds);
}

double Comparison::peak_error() const {
  return RelativeError(static_cast<double>(predicted_peak_bytes),
                       static_cast<double>(measured_peak_bytes));
}

absl::StatusOr<PredictedStep> PredictStep(const v1::TrainingJob& job,
                                          const schedule::CostTable* costs) {
  ASSIGN_OR_RETURN(const Plan plan, schedule::Compile(job));
  const schedule::RoutedRows rows = schedule::BalancedRows(plan, plan.train);
  ASSIGN_OR_RETURN(
      const schedule::Simulation simulated,
      schedule::Simulate(
          plan, plan.train,
          costs != nullptr ? *costs : schedule::ModelledCosts(plan, plan.train),
          {rows}));
  const auto& times = simulated.ranks.front();
  const std::vector<schedule::Span> spans = schedule::ToSpans(times);
  schedule::TraceFacts facts;
  facts.is_simulated = true;
  facts.step_seconds = simulated.step_seconds;
  schedule::TraceRank rank;
  rank.spans = spans;
  rank.rows = rows;
  rank.memory = schedule::MemoryCurve(plan, plan.train, times, rows);
  PredictedStep step;
  step.record = RecordOf(plan, simulated, schedule::PeakBytes(rank.memory));
  step.trace = schedule::TraceJson(plan, plan.train, facts, {rank});
  return step;
}

absl::Status WriteTextFile(const std::string& path, const std::string& text) {
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                   AtomicFile::Create(path));
  RETURN_IF_ERROR(file->Append(text));
  return file->Commit();
}

bool AreRunsOfOne(const v1::Job& a, const v1::Job& b) {
  v1::TrainingJob specs[] = {a.spec(), b.spec()};
  for (v1::TrainingJob& spec : specs) spec.mutable_output()->clear_trace_step();
  return specs[0].SerializeAsString() == specs[1].SerializeAsString();
}

absl::StatusOr<Comparison> CompareStep(absl::Span<const v1::Job> runs,
                                       const schedule::CostTable& costs) {
  ASSIGN_OR_RETURN(const Plan plan, schedule::Compile(runs.front().spec()));
  Comparison comparison;
  std::vector<double> predicted;
  std::vector<double> measured;
  for (const v1::Job& run : runs) {
    RETURN_IF_ERROR(CheckMeasured(run));
    ASSIGN_OR_RETURN(const StepTrace trace, ReadStepTrace(run, plan));
    std::vector<schedule::RoutedRows> rows;
    for (const auto& rank : trace.step.ranks) rows.push_back(rank.rows);
    ASSIGN_OR_RETURN(const schedule::Simulation simulated,
                     schedule::Simulate(plan, plan.train, costs, rows));
    predicted.push_back(simulated.step_seconds);
    ASSIGN_OR_RETURN(const std::vector<double> seconds,
                     StepSeconds(run.artifacts()));
    measured.insert(measured.end(), seconds.begin(), seconds.end());
    comparison.predicted_peak_bytes = std::max(
        comparison.predicted_peak_bytes,
        BytesBesideArena(plan) + PeakArenaBytes(plan, simulated, rows));
    comparison.measured_peak_bytes =
        std::max(comparison.measured_peak_bytes, trace.peak_device_bytes);
  }
  comparison.predicted_seconds = schedule::Median(std::move(predicted));
  comparison.measured_seconds = schedule::Median(std::move(measured));
  return comparison;
}

}  // namespace weft::client
