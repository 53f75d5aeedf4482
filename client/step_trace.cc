#include "client/step_trace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/json_file.h"
#include "nlohmann/json.hpp"
#include "schedule/trace.h"

namespace weft::client {
namespace {

using nlohmann::json;

std::string PathOf(const v1::Job& job, int rank) {
  return absl::StrCat(job.artifacts(), "/trace.step-",
                      job.spec().output().trace_step(), ".rank-", rank,
                      ".json");
}

// A rank's file, with everything in it that both readers rely on.
absl::StatusOr<json> ReadTraceFile(const v1::Job& job, int rank) {
  RETURN_IF_ERROR(CheckMeasured(job));
  const std::string path = PathOf(job, rank);
  ASSIGN_OR_RETURN(json trace, ReadJsonFile(path));
  const json& facts = trace["otherData"];
  const bool is_trace = facts.is_object() && trace["traceEvents"].is_array() &&
                        facts.value("format", "") == schedule::kTraceFormat &&
                        facts.value("rank", -1) == rank;
  if (!is_trace) {
    return absl::DataLossError(absl::StrCat(
        path, " is no ", schedule::kTraceFormat, " trace of rank ", rank));
  }
  return trace;
}

absl::Status NotOfPlan(const v1::Job& job, int rank, absl::string_view why) {
  return absl::DataLossError(
      absl::StrCat(PathOf(job, rank), " does not fit the job's plan: ", why));
}

// A clock that began more than thirty years ago is none.
constexpr double kMaxMicros = 1e15;

// Takes in what an event says of its op.
absl::Status ReadEvent(const json& event, const schedule::Plan& plan,
                       schedule::MeasuredRank& rank) {
  const json& args = event.at("args");
  const int64_t id = args.at("op");
  if (id < 0 || id >= static_cast<int64_t>(plan.train.ops.size())) {
    return absl::OutOfRangeError(absl::StrCat("op ", id));
  }
  const double begin_us = event.at("ts");
  const double us = event.at("dur");
  if (!(std::abs(begin_us) <= kMaxMicros)) {
    return absl::OutOfRangeError(absl::StrCat("ts ", begin_us));
  }
  if (!(us >= 0 && us <= kMaxMicros)) {
    return absl::OutOfRangeError(absl::StrCat("dur ", us));
  }
  rank.spans[id] = {static_cast<int32_t>(id), std::llround(begin_us * 1e3),
                    std::llround((begin_us + us) * 1e3)};
  if (args.contains("rows")) {
    const schedule::Op& op = plan.train.ops[id];
    if (op.layer < 0 || op.microbatch < 0) {
      return absl::OutOfRangeError(absl::StrCat("rows of op ", id));
    }
    const int64_t rows = args.at("rows");
    if (rows < 0 || rows > plan.shape.Of(op.microbatch).max_received_rows()) {
      return absl::OutOfRangeError(absl::StrCat("rows ", rows));
    }
    rank.rows.rows[op.layer * rank.rows.microbatches + op.microbatch] = rows;
  }
  return absl::OkStatus();
}

absl::StatusOr<schedule::MeasuredRank> ReadRank(const json& trace,
                                                const schedule::Plan& plan) {
  const size_t ops = plan.train.ops.size();
  if (trace.at("otherData").value("ops", size_t{0}) != ops) {
    return absl::OutOfRangeError(
        absl::StrCat("it has other than ", ops, " ops"));
  }
  schedule::MeasuredRank rank;
  rank.rows = schedule::BalancedRows(plan, plan.train);
  std::fill(rank.rows.rows.begin(), rank.rows.rows.end(), 0);
  rank.spans.assign(ops, {-1, 0, 0});
  for (const json& event : trace.at("traceEvents")) {
    if (event.value("ph", "") != "X") continue;
    RETURN_IF_ERROR(ReadEvent(event, plan, rank));
  }
  for (size_t id = 0; id < ops; ++id) {
    const bool has_none = rank.spans[id].op < 0;
    rank.spans[id].op = static_cast<int32_t>(id);
    if (has_none && plan.train.ops[id].kind != schedule::OpKind::kHostWait) {
      return absl::OutOfRangeError(absl::StrCat("op ", id, " is missing"));
    }
  }
  return rank;
}

// What `read` returns, or DATA_LOSS when it meets a field of another type than
// that must have.
template <typename Read>
auto Guarded(const std::string& what, Read read) -> decltype(read()) {
  try {
    return read();
  } catch (const json::exception& e) {
    return absl::DataLossError(absl::StrCat(what, ": ", e.what()));
  }
}

// Whether the traces of all ranks can be laid beside each other.
class OneClock {
 public:
  explicit OneClock(const v1::Job& job) : job_(job) {}

  // FAILED_PRECONDITION when the rank ran on another host than the first one.
  absl::Status Add(int rank, const json& trace) {
    const std::string host = trace.at("otherData").value("host", "");
    if (rank == 0) first_host_ = host;
    if (host == first_host_) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job_.id(), ": rank ", rank, " ran on host \"", host,
        "\", rank 0 on \"", first_host_,
        "\"; hosts share no clock, so the traces of their ranks (",
        PathOf(job_, 0), " and others) cannot be laid side by side"));
  }

 private:
  const v1::Job& job_;
  std::string first_host_;
};

absl::StatusOr<StepTrace> ReadRanks(const v1::Job& job,
                                    const schedule::Plan& plan) {
  StepTrace result;
  result.step.plan = &plan;
  OneClock clock(job);
  for (int r = 0; r < plan.world.size; ++r) {
    ASSIGN_OR_RETURN(const json trace, ReadTraceFile(job, r));
    absl::StatusOr<schedule::MeasuredRank> rank = ReadRank(trace, plan);
    if (!rank.ok()) return NotOfPlan(job, r, rank.status().message());
    result.step.ranks.push_back(*std::move(rank));
    RETURN_IF_ERROR(clock.Add(r, trace));
    const json& facts = trace.at("otherData");
    result.step.step_seconds =
        std::max(result.step.step_seconds, facts.value("step_seconds", 0.0));
    result.step.cores = facts.value("cores", 0);
    result.peak_device_bytes = std::max(
        result.peak_device_bytes, facts.value("peak_device_bytes", int64_t{0}));
  }
  return result;
}

absl::StatusOr<std::string> Merge(const v1::Job& job) {
  RETURN_IF_ERROR(CheckMeasured(job));
  OneClock clock(job);
  json merged;
  double first = std::numeric_limits<double>::infinity();
  for (int r = 0; r < job.spec().parallel().world(); ++r) {
    ASSIGN_OR_RETURN(json trace, ReadTraceFile(job, r));
    RETURN_IF_ERROR(clock.Add(r, trace));
    for (const json& event : trace["traceEvents"]) {
      first = std::min(first, event.value("ts", first));
    }
    if (r == 0) {
      merged = std::move(trace);
      continue;
    }
    for (json& event : trace["traceEvents"]) {
      merged["traceEvents"].push_back(std::move(event));
    }
  }
  for (json& event : merged["traceEvents"]) {
    if (event.contains("ts")) event["ts"] = event["ts"].get<double>() - first;
  }
  merged["otherData"].erase("rank");
  merged["otherData"]["job"] = job.id();
  return merged.dump() + "\n";
}

absl::StatusOr<std::vector<double>> ReadStepSeconds(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<json> lines, ReadJsonLines(path));
  std::vector<double> seconds;
  for (const json& step : lines) {
    if (step.value("kind", json()) != "step") continue;
    if (step.value("step", 0) > 1) {
      seconds.push_back(step.value("step_seconds", 0.0));
    }
  }
  if (seconds.empty()) {
    return absl::NotFoundError(
        absl::StrCat(path, " holds no step after the first"));
  }
  return seconds;
}

}  // namespace

absl::Status CheckMeasured(const v1::Job& job) {
  const int64_t step = job.spec().output().trace_step();
  if (step <= 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job.id(), " measured no step; run it with output.trace_step"));
  }
  const bool has_broken_off = job.state() == v1::JOB_STATE_FAILED ||
                              job.state() == v1::JOB_STATE_CANCELLED;
  if (!has_broken_off || job.step() >= step) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "job ", job.id(), " ended after step ", job.step(), ", before step ",
      step, ", which it was to trace: ", job.message()));
}

absl::StatusOr<StepTrace> ReadStepTrace(const v1::Job& job,
                                        const schedule::Plan& plan) {
  ASSIGN_OR_RETURN(StepTrace trace,
                   Guarded(absl::StrCat("the traces of job ", job.id()),
                           [&] { return ReadRanks(job, plan); }));
  ASSIGN_OR_RETURN(std::vector<double> seconds, StepSeconds(job.artifacts()));
  trace.step.median_seconds = schedule::Median(std::move(seconds));
  return trace;
}

absl::StatusOr<std::string> MergeTraces(const v1::Job& job) {
  return Guarded(absl::StrCat("the traces of job ", job.id()),
                 [&] { return Merge(job); });
}

absl::StatusOr<std::vector<double>> StepSeconds(const std::string& artifacts) {
  const std::string path = artifacts + "/steps.rank-0.jsonl";
  return Guarded(path, [&] { return ReadStepSeconds(path); });
}

}  // namespace weft::client
