#include "schedule/trace.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "schedule/op_name.h"

namespace weft::schedule {
namespace {

// Names of ops, streams and hosts: letters, digits and punctuation only.
std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  out.push_back('"');
  return out;
}

std::string Metadata(int rank, absl::string_view what, int row,
                     absl::string_view name) {
  return absl::StrCat("{\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", rank,
                      ",\"tid\":", row, ",\"args\":{\"name\":", Quoted(name),
                      "}}");
}

bool IsForwardDispatch(const Plan& plan, const Op& op) {
  return op.kind == OpKind::kNode && op.phase == model::Phase::kForward &&
         plan.model.node(op.layer, op.node).kind == model::NodeKind::kDispatch;
}

std::string OpEvent(const Plan& plan, const Program& program,
                    const TraceRank& of, const Span& span) {
  const Op& op = program.ops[span.op];
  std::string args = absl::StrCat("\"op\":", span.op);
  if (IsForwardDispatch(plan, op)) {
    absl::StrAppend(&args, ",\"rows\":", of.rows.at(op.layer, op.microbatch));
  }
  return absl::StrCat(
      "{\"ph\":\"X\",\"name\":", Quoted(OpName(plan.model, plan.units, op)),
      ",\"pid\":", of.rank, ",\"tid\":", static_cast<int>(op.stream),
      absl::StrFormat(",\"ts\":%.3f,\"dur\":%.3f", span.begin_ns / 1e3,
                      (span.end_ns - span.begin_ns) / 1e3),
      ",\"args\":{", args, "}}");
}

std::string MemoryEvent(int rank, const MemoryPoint& point) {
  return absl::StrCat("{\"ph\":\"C\",\"name\":\"arena bytes\",\"pid\":", rank,
                      absl::StrFormat(",\"ts\":%.3f", point.seconds * 1e6),
                      ",\"args\":{\"activations\":", point.activations,
                      ",\"routed\":", point.routed,
                      ",\"gathered\":", point.gathered,
                      ",\"gradients\":", point.gradients, "}}");
}

void AppendRank(const Plan& plan, const Program& program, const TraceRank& of,
                std::vector<std::string>& events) {
  events.push_back(
      Metadata(of.rank, "process_name", 0, absl::StrCat("rank ", of.rank)));
  for (int s = 0; s < kNumStreams; ++s) {
    events.push_back(
        Metadata(of.rank, "thread_name", s, Name(static_cast<StreamKind>(s))));
  }
  for (const Span& span : of.spans) {
    if (program.ops[span.op].kind == OpKind::kHostWait) continue;
    events.push_back(OpEvent(plan, program, of, span));
  }
  for (const MemoryPoint& point : of.memory) {
    events.push_back(MemoryEvent(of.rank, point));
  }
}

}  // namespace

std::string TraceJson(const Plan& plan, const Program& program,
                      const TraceFacts& facts,
                      const std::vector<TraceRank>& ranks) {
  std::vector<std::string> events;
  for (const TraceRank& of : ranks) AppendRank(plan, program, of, events);
  return absl::StrCat(
      "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"format\":\"", kTraceFormat,
      "\",\"kind\":\"", facts.is_simulated ? "simulated" : "measured",
      "\",\"step\":", facts.step,
      absl::StrFormat(",\"step_seconds\":%.9f", facts.step_seconds),
      ",\"peak_device_bytes\":", facts.peak_device_bytes,
      ",\"cores\":", facts.cores, ",\"host\":", Quoted(facts.host),
      ",\"rank\":", ranks.front().rank, ",\"world\":", plan.world.size,
      ",\"ops\":", program.ops.size(), "},\"traceEvents\":[\n",
      absl::StrJoin(events, ",\n"), "\n]}\n");
}

}  // namespace weft::schedule
