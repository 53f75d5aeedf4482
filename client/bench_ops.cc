#include "client/bench_ops.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/output.h"

namespace weft::client {
namespace {

using schedule::Op;
using schedule::OpSize;

void Add(const OpSize& one, OpSize& sum) {
  sum.flops += one.flops;
  sum.attention_flops += one.attention_flops;
  sum.bytes += one.bytes;
  sum.wire_bytes += one.wire_bytes;
}

// Products and attention one after another, or what is moved, whichever takes
// longer.
double LeastSeconds(const schedule::Plan& plan, const Op& op,
                    const OpSize& size, const Ceilings& ceilings) {
  const bool is_node = op.kind == schedule::OpKind::kNode;
  const bool is_grouped = is_node && plan.model.node(op.layer, op.node).kind ==
                                         model::NodeKind::kExperts;
  const bool is_forward = op.phase == model::Phase::kForward ||
                          op.phase == model::Phase::kRecompute;
  const double products =
      size.flops / (is_grouped ? ceilings.grouped_gemm : ceilings.gemm);
  const double attention =
      size.attention_flops /
      (is_forward ? ceilings.attention_forward : ceilings.attention_backward);
  const double moved = schedule::IsExchange(plan, op)
                           ? size.wire_bytes / ceilings.wire
                           : size.bytes / ceilings.memory;
  return std::max(products + attention, moved);
}

std::string RateText(double rate, bool is_in_flops) {
  return is_in_flops ? absl::StrFormat("%.3g TFLOP/s", rate * 1e-12)
                     : absl::StrFormat("%.3g GB/s", rate * 1e-9);
}

}  // namespace

bool OpKindTime::is_in_flops() const {
  return size.flops + size.attention_flops > 0;
}

double OpKindTime::amount() const {
  if (is_in_flops()) return size.flops + size.attention_flops;
  return size.wire_bytes > 0 ? size.wire_bytes : size.bytes;
}

std::vector<OpKindTime> OpKindTimes(const schedule::MeasuredStep& step,
                                    const Ceilings* ceilings) {
  const schedule::Plan& plan = *step.plan;
  const double share = 1.0 / static_cast<double>(step.ranks.size());
  std::map<std::string, OpKindTime> by_kind;
  for (const schedule::MeasuredRank& rank : step.ranks) {
    for (size_t id = 0; id < plan.train.ops.size(); ++id) {
      const Op& op = plan.train.ops[id];
      if (op.kind == schedule::OpKind::kHostWait) continue;
      OpKindTime& kind = by_kind[schedule::ClassOf(plan, op)];
      const schedule::Span& span = rank.spans[id];
      OpSize size = schedule::SizeOf(plan, plan.train, op, rank.rows);
      if (ceilings != nullptr) {
        kind.least_seconds += share * LeastSeconds(plan, op, size, *ceilings);
      }
      kind.seconds += share * 1e-9 * (span.end_ns - span.begin_ns);
      size.flops *= share;
      size.attention_flops *= share;
      size.bytes *= share;
      size.wire_bytes *= share;
      Add(size, kind.size);
      if (&rank == &step.ranks.front()) ++kind.ops;
    }
  }
  std::vector<OpKindTime> kinds;
  for (auto& [name, kind] : by_kind) {
    kind.kind = name;
    if (kind.seconds > 0) kinds.push_back(std::move(kind));
  }
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const OpKindTime& a, const OpKindTime& b) {
                     return a.seconds > b.seconds;
                   });
  return kinds;
}

std::string OpKindTable(const std::vector<OpKindTime>& kinds,
                        const Ceilings* ceilings) {
  std::vector<std::string> header = {"OP", "OPS", "TIME", "RATE"};
  if (ceilings != nullptr) header.insert(header.end(), {"CEILING", "RATIO"});
  TextTable table(header);
  for (const OpKindTime& kind : kinds) {
    const bool in_flops = kind.is_in_flops();
    std::vector<std::string> row = {
        kind.kind, absl::StrCat(kind.ops),
        absl::StrFormat("%.3f ms", 1e3 * kind.seconds),
        kind.amount() > 0 ? RateText(kind.rate(), in_flops) : "-"};
    if (ceilings != nullptr) {
      const bool has_ceiling = kind.least_seconds > 0;
      row.push_back(has_ceiling ? RateText(kind.ceiling(), in_flops) : "-");
      row.push_back(has_ceiling ? absl::StrFormat("%.2f", kind.ratio()) : "-");
    }
    table.AddRow(std::move(row));
  }
  std::string text = table.ToString();
  if (ceilings != nullptr) {
    absl::StrAppend(&text, "ceilings: ", ceilings->source, "\n");
  }
  return text;
}

nlohmann::ordered_json OpKindJson(const std::vector<OpKindTime>& kinds) {
  auto all = nlohmann::ordered_json::array();
  for (const OpKindTime& kind : kinds) {
    nlohmann::ordered_json row = {
        {"op", kind.kind}, {"ops", kind.ops}, {"seconds", kind.seconds}};
    if (kind.amount() > 0) {
      const bool in_flops = kind.is_in_flops();
      row[in_flops ? "flops_per_second" : "bytes_per_second"] = kind.rate();
      if (kind.least_seconds > 0) {
        row["ceiling_per_second"] = kind.ceiling();
        row["ratio"] = kind.ratio();
      }
    }
    all.push_back(std::move(row));
  }
  return all;
}

}  // namespace weft::client
