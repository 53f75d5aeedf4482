#include "client/step_trace.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "checkpoint/format/json_fields.h"
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

// A clock that began more than thirty years ago is none.
constexpr double kMaxMicros = 1e15;

absl::Status Wrong(const char* key, const json& object) {
  const auto it = object.find(key);
  return absl::OutOfRangeError(
      it == object.end() ? absl::StrCat(key, " is missing")
                         : absl::StrCat(key, " ", checkpoint::ShortText(*it)));
}

// The number that is called `key`. OUT_OF_RANGE when it is none of [min, max].
absl::StatusOr<double> Number(const json& object, const char* key, double min,
                              double max) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number()) return Wrong(key, object);
  const auto value = it->get<double>();
  if (!(value >= min && value <= max)) return Wrong(key, object);
  return value;
}

absl::StatusOr<int64_t> Integer(const json& object, const char* key,
                                int64_t max) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_unsigned() || *it > max) {
    return Wrong(key, object);
  }
  return it->get<int64_t>();
}

// What otherData says must be of the traced step of the job's rank.
absl::Status CheckFacts(const json& facts, const v1::Job& job, int rank) {
  checkpoint::FieldReader fields(facts, "otherData.");
  fields.Require({"kind", "step", "world", "step_seconds", "ops"});
  const auto is = [&](const char* name, int64_t value) {
    fields.Integer({name, value, value, value});
  };
  is("step", job.spec().output().trace_step());
  is("world", job.spec().parallel().world());
  is("rank", rank);
  const json* kind = fields.Take("kind");
  if (kind != nullptr && *kind != "measured") {
    fields.Refuse("kind", "must be \"measured\"");
  }
  const json* host = fields.Take("host");
  if (host != nullptr && !host->is_string()) {
    fields.Refuse("host", "must be text");
  }
  if (fields.Number("step_seconds", 1) < 0) {
    fields.Refuse("step_seconds", "must be at least 0");
  }
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  fields.Integer({"cores", 0, 0, std::numeric_limits<int>::max()});
  fields.Integer({"peak_device_bytes", 0, 0, kMax});
  fields.Integer({"ops", 0, 0, kMax});
  return fields.Refusals();
}

absl::Status CheckEvents(const json& events) {
  int number = 0;
  for (const json& event : events) {
    const std::string name = absl::StrCat("traceEvents[", number++, "]");
    if (!event.is_object()) {
      return absl::DataLossError(name + " is no object");
    }
    if (!event.contains("ts")) continue;
    RETURN_IF_ERROR(
        Annotate(Number(event, "ts", -kMaxMicros, kMaxMicros).status(), name));
  }
  return absl::OkStatus();
}

// A rank's file, with everything in it that both readers rely on.
absl::StatusOr<json> ReadTraceFile(const v1::Job& job, int rank) {
  RETURN_IF_ERROR(CheckMeasured(job));
  const std::string path = PathOf(job, rank);
  ASSIGN_OR_RETURN(json trace, ReadJsonFile(path));
  const json& facts = trace["otherData"];
  const bool is_trace = facts.is_object() && trace["traceEvents"].is_array() &&
                        facts.value("format", json()) == schedule::kTraceFormat;
  if (!is_trace) {
    return absl::DataLossError(
        absl::StrCat(path, " is no ", schedule::kTraceFormat, " trace"));
  }
  absl::Status checked = CheckFacts(facts, job, rank);
  if (checked.ok()) checked = CheckEvents(trace["traceEvents"]);
  if (checked.ok()) return trace;
  return absl::DataLossError(absl::StrCat(path, ": ", checked.message()));
}

absl::Status NotOfPlan(const v1::Job& job, int rank, absl::string_view why) {
  return absl::DataLossError(
      absl::StrCat(PathOf(job, rank), " does not fit the job's plan: ", why));
}

// Takes in what an event says of its op.
absl::Status ReadEvent(const json& event, const schedule::Plan& plan,
                       schedule::MeasuredRank& rank) {
  const auto args = event.find("args");
  if (args == event.end() || !args->is_object()) return Wrong("args", event);
  const auto last = static_cast<int64_t>(plan.train.ops.size()) - 1;
  ASSIGN_OR_RETURN(const int64_t id, Integer(*args, "op", last));
  ASSIGN_OR_RETURN(const double begin_us,
                   Number(event, "ts", -kMaxMicros, kMaxMicros));
  ASSIGN_OR_RETURN(const double us, Number(event, "dur", 0, kMaxMicros));
  if (rank.spans[id].op >= 0) {
    return absl::OutOfRangeError(absl::StrCat("op ", id, " is there twice"));
  }
  rank.spans[id] = {static_cast<int32_t>(id), std::llround(begin_us * 1e3),
                    std::llround((begin_us + us) * 1e3)};
  if (!args->contains("rows")) return absl::OkStatus();
  const schedule::Op& op = plan.train.ops[id];
  if (op.layer < 0 || op.microbatch < 0) {
    return absl::OutOfRangeError(absl::StrCat("rows of op ", id));
  }
  ASSIGN_OR_RETURN(
      rank.rows.rows[op.layer * rank.rows.microbatches + op.microbatch],
      Integer(*args, "rows", plan.shape.Of(op.microbatch).max_received_rows()));
  return absl::OkStatus();
}

absl::StatusOr<schedule::MeasuredRank> ReadRank(const json& trace,
                                                const schedule::Plan& plan) {
  const size_t ops = plan.train.ops.size();
  if (trace.at("otherData").at("ops") != ops) {
    return absl::OutOfRangeError(
        absl::StrCat("it has other than ", ops, " ops"));
  }
  schedule::MeasuredRank rank;
  rank.rows = schedule::BalancedRows(plan, plan.train);
  std::fill(rank.rows.rows.begin(), rank.rows.rows.end(), 0);
  rank.spans.assign(ops, {-1, 0, 0});
  for (const json& event : trace.at("traceEvents")) {
    if (event.value("ph", json()) != "X") continue;
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
    result.step.step_seconds = std::max(result.step.step_seconds,
                                        facts.at("step_seconds").get<double>());
    result.step.cores = facts.value("cores", 0);
    result.peak_device_bytes = std::max(
        result.peak_device_bytes, facts.value("peak_device_bytes", int64_t{0}));
  }
  return result;
}

}  // namespace

absl::StatusOr<std::string> MergeTraces(const v1::Job& job) {
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
  ASSIGN_OR_RETURN(StepTrace trace, ReadRanks(job, plan));
  ASSIGN_OR_RETURN(std::vector<double> seconds, StepSeconds(job.artifacts()));
  trace.step.median_seconds = schedule::Median(std::move(seconds));
  return trace;
}

absl::StatusOr<std::vector<double>> StepSeconds(const std::string& artifacts) {
  const std::string path = artifacts + "/steps.rank-0.jsonl";
  ASSIGN_OR_RETURN(const std::vector<json> lines, ReadJsonLines(path));
  std::vector<double> seconds;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].value("kind", json()) != "step") continue;
    checkpoint::FieldReader fields(lines[i]);
    fields.Require({"step", "step_seconds"});
    const int64_t step =
        fields.Integer({"step", 0, 1, std::numeric_limits<int64_t>::max()});
    const double took = fields.Number("step_seconds", 1);
    if (took <= 0) fields.Refuse("step_seconds", "must be above 0");
    const absl::Status refusals = fields.Refusals();
    if (!refusals.ok()) {
      return absl::DataLossError(
          absl::StrCat(path, ": line ", i + 1, ": ", refusals.message()));
    }
    if (step > 1) seconds.push_back(took);
  }
  if (!seconds.empty()) return seconds;
  return absl::NotFoundError(
      absl::StrCat(path, " holds no step after the first"));
}

}  // namespace weft::client
