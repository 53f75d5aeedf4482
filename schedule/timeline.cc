#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "schedule/op_name.h"
#include "schedule/plan.h"

namespace weft::schedule {
namespace {

struct Interval {
  double begin = 0;
  double end = 0;
};

// Bytes count like this many FLOPs, so that a picture shows transfers at a size
// comparable with the GEMMs beside them.
constexpr double kFlopsPerByte = 64;

double Cost(const Plan& plan, const Program& program, const Op& op) {
  if (op.kind == OpKind::kHostWait || op.kind == OpKind::kRelease) return 0;
  if (op.kind == OpKind::kNode && op.stream == StreamKind::kCompute) {
    return plan.model.node(op.layer, op.node).Find(op.phase)->flops;
  }
  double bytes = 0;
  if (op.kind == OpKind::kNode) {
    for (int value : op.args) {
      bytes = std::max<double>(bytes, program.values[value].bytes);
    }
    bytes /= std::max<int64_t>(1, plan.shape.ep);
  } else if (op.bucket >= 0 && op.kind != OpKind::kOptimizer) {
    bytes = plan.units.buckets[op.bucket].elements * 4.0;
  }
  return bytes * kFlopsPerByte;
}

// Starts every op when its stream is free and its waits are over.
std::vector<Interval> Run(const Plan& plan, const Program& program) {
  std::vector<Interval> intervals(program.ops.size());
  std::array<double, kNumStreams> free{};
  double launched = 0;
  for (int id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    double begin = launched;
    for (int wait : op.waits) begin = std::max(begin, intervals[wait].end);
    if (op.kind == OpKind::kHostWait) {
      launched = begin;
      intervals[id] = {begin, begin};
      continue;
    }
    double& stream = free[static_cast<int>(op.stream)];
    begin = std::max(begin, stream);
    stream = begin + Cost(plan, program, op);
    intervals[id] = {begin, stream};
  }
  return intervals;
}

// An op drawn `width` columns wide, its name cut to fit; a bar when there is
// room for no more.
std::string Cell(const std::string& name, int width) {
  const std::string label =
      absl::StrReplaceAll(name, {{"layers.", "L"},
                                 {".pre_dispatch", " attn"},
                                 {".dispatch", " disp"},
                                 {".combine", " comb"},
                                 {".experts", " exp"},
                                 {".counts", " cnt"},
                                 {"gather ", ""},
                                 {"reduce ", ""}});
  if (width <= 0) return "";
  if (width == 1) return "|";
  std::string cell = "[";
  absl::StrAppend(&cell, label.substr(0, width - 2));
  cell.resize(width - 1, '-');
  return cell + "]";
}

}  // namespace

std::string DrawTimeline(const Plan& plan, const Program& program,
                         int max_columns) {
  const std::vector<Interval> intervals = Run(plan, program);
  double total = 0;
  for (const Interval& interval : intervals) {
    total = std::max(total, interval.end);
  }
  if (total <= 0) return "";
  const double scale = max_columns / total;
  std::array<std::string, kNumStreams> rows;
  for (int id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    const int begin = static_cast<int>(intervals[id].begin * scale);
    const int end = static_cast<int>(intervals[id].end * scale);
    std::string& row = rows[static_cast<int>(op.stream)];
    if (end <= begin || end <= row.size()) continue;
    row.resize(std::max<size_t>(row.size(), begin), ' ');
    row += Cell(OpName(plan.model, plan.units, op), end - row.size());
  }
  std::string text;
  for (int s = 0; s < kNumStreams; ++s) {
    absl::StrAppendFormat(&text, "%-8s|%s\n", Name(static_cast<StreamKind>(s)),
                          rows[s]);
  }
  return text;
}

}  // namespace weft::schedule
