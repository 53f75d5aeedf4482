#include "worker/exec/finite_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "schedule/op_name.h"
#include "worker/layers/routing.h"

namespace weft::exec {
namespace {

int64_t CountOf(const FiniteCheck& check, const CheckedRange& range) {
  if (range.counts == nullptr) return range.count;
  return layers::Routing(*check.shape, check.ep_rank, range.counts)
             .ReceivedRows() *
         range.columns;
}

const char* NameOf(double value) {
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

// Who wrote it.
std::string Writer(const Finding& finding, const schedule::Plan& plan,
                   const schedule::Program& program) {
  if (finding.op == Finding::kBeforeTheStep) return "before its first op";
  const schedule::Op& op = program.ops[finding.op];
  if (op.kind != schedule::OpKind::kNode) {
    return schedule::OpName(plan.model, plan.units, op);
  }
  return absl::StrCat(
      "microbatch ", op.microbatch, ", ", plan.model.layers[op.layer].name, " ",
      Name(plan.model.node(op.layer, op.node).kind), " ", Name(op.phase));
}

// What it is, and where in it.
std::string Place(const Finding& finding, const schedule::Plan& plan) {
  if (finding.what == Checked::kValue) {
    const model::ValueDecl& value = plan.model.values[finding.id];
    return absl::StrCat("value ", value.name, " has ", NameOf(finding.value),
                        " at row ", finding.index / value.columns, " column ",
                        finding.index % value.columns);
  }
  const bool gradient = finding.what == Checked::kGradient;
  return absl::StrCat(gradient ? "the gradient of " : "parameter ",
                      plan.model.params[finding.id].name, " has ",
                      NameOf(finding.value), " at element ", finding.index);
}

}  // namespace

std::vector<CheckedRange> PartsOf(
    Checked what, const fsdp::Bucket& bucket, const fsdp::BucketView& view,
    absl::Span<const fsdp::Parameter> parameters) {
  std::vector<CheckedRange> ranges;
  for (const fsdp::Segment& segment : fsdp::SegmentsIn(bucket, view.range)) {
    CheckedRange& range = ranges.emplace_back();
    range.what = what;
    range.id = segment.param;
    const device::Tensor held = view.at(segment.bucket_offset);
    range.dtype = held.dtype;
    range.data = held.data;
    range.count = segment.elements;
    range.begin = parameters[segment.param].global_begin + segment.param_offset;
  }
  return ranges;
}

absl::Status MakeRoom(HostPool& host, std::deque<FiniteCheck>& checks) {
  size_t ranges = 0;
  for (const FiniteCheck& check : checks) ranges += check.ranges.size();
  ASSIGN_OR_RETURN(ops::NonFinite * at, host.TakeArray<ops::NonFinite>(ranges));
  std::fill_n(at, ranges, ops::NonFinite());
  for (FiniteCheck& check : checks) {
    check.found = {at, check.ranges.size()};
    at += check.ranges.size();
  }
  return absl::OkStatus();
}

absl::Status RunFiniteCheck(void* arg, device::Stream& stream) {
  const FiniteCheck& check = *static_cast<const FiniteCheck*>(arg);
  for (size_t i = 0; i < check.ranges.size(); ++i) {
    const CheckedRange& range = check.ranges[i];
    ops::FindNonFiniteArgs args;
    args.count = CountOf(check, range);
    args.dtype = range.dtype;
    args.x = range.data;
    args.out = &check.found[i];
    args.row_count = range.row_count;
    args.columns = range.columns;
    ops::FindNonFinite(args, stream);
  }
  return absl::OkStatus();
}

std::optional<Finding> FirstOf(const FiniteCheck& check, int op) {
  for (size_t i = 0; i < check.ranges.size(); ++i) {
    const ops::NonFinite& found = check.found[i];
    if (found.index < 0) continue;
    const CheckedRange& range = check.ranges[i];
    return Finding{op, range.what, range.id, range.begin + found.index,
                   found.value};
  }
  return std::nullopt;
}

// The first word is 0 when there is no finding, else the op's index plus 2.
void Encode(const std::optional<Finding>& finding, absl::Span<uint64_t> words) {
  words[0] = 0;
  if (!finding.has_value()) return;
  words[0] = static_cast<uint64_t>(finding->op + 2);
  words[1] = static_cast<uint64_t>(finding->what);
  words[2] = static_cast<uint64_t>(finding->id);
  words[3] = static_cast<uint64_t>(finding->index);
  std::memcpy(&words[4], &finding->value, sizeof(double));
}

std::optional<Finding> Decode(absl::Span<const uint64_t> words) {
  if (words[0] == 0) return std::nullopt;
  Finding finding;
  finding.op = static_cast<int>(words[0]) - 2;
  finding.what = static_cast<Checked>(words[1]);
  finding.id = static_cast<int>(words[2]);
  finding.index = static_cast<int64_t>(words[3]);
  std::memcpy(&finding.value, &words[4], sizeof(double));
  return finding;
}

std::string Describe(const Finding& finding, const schedule::Plan& plan,
                     const schedule::Program& program) {
  return absl::StrCat(Writer(finding, plan, program), ": ",
                      Place(finding, plan));
}

}  // namespace weft::exec
