#include "client/parity_matrix.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace weft::client {
namespace {

// Axes whose values may be illegal in themselves: a batch, a world or experts
// that cannot be divided so.
constexpr absl::string_view kDivisions[] = {"world", "ep", "microbatch"};

std::string Count(int n, const std::string& what) {
  const bool is_plural = n != 1;
  const bool hisses = absl::EndsWith(what, "s");
  return absl::StrCat(n, " ", what, is_plural ? (hisses ? "es" : "s") : "");
}

}  // namespace

ParityRow& ParityMatrix::AddRow(const ParityRun& run, ParityClass** of) {
  rows_.push_back({run.label(), run.sum_class, "", ""});
  auto known = absl::c_find_if(classes_, [&](const ParityClass& each) {
    return each.name == run.sum_class;
  });
  if (known == classes_.end()) {
    known = classes_.insert(known, {run.sum_class});
  }
  ++known->generated;
  *of = &*known;
  for (const std::string& value : run.values) {
    const bool is_new = absl::c_none_of(
        cells_, [&](const Cell& cell) { return cell.value == value; });
    if (is_new) cells_.push_back({value});
  }
  return rows_.back();
}

void ParityMatrix::AddRefused(const ParityRun& run, const std::string& reason) {
  ParityClass* of = nullptr;
  ParityRow& row = AddRow(run, &of);
  ++of->refused;
  auto known = absl::c_find_if(refusals_, [&](const ParityRefusal& each) {
    return each.reason == reason;
  });
  if (known == refusals_.end()) known = refusals_.insert(known, {reason});
  ++known->runs;
  row.result = "refused";
  row.detail = absl::StrCat("reason ", known - refusals_.begin() + 1);
}

void ParityMatrix::AddFailed(const ParityRun& run, const std::string& message) {
  ParityClass* of = nullptr;
  ParityRow& row = AddRow(run, &of);
  ++failed_;
  row.result = "FAILED";
  row.detail = message;
}

absl::Status ParityMatrix::AddExecuted(const ParityRun& run,
                                       const std::string& artifacts) {
  ParityClass* of = nullptr;
  ParityRow& row = AddRow(run, &of);
  ++executed_;
  ++of->executed;
  for (Cell& cell : cells_) {
    if (absl::c_linear_search(run.values, cell.value)) ++cell.executed;
  }
  const Reference self = {generated(), artifacts};
  const auto [leader, leads] = leaders_.insert({run.sum_class, self});
  const auto [model, is_model] = objectives_.insert({run.objective, self});
  if (leads) of->first_run = self.run;
  if (is_model) {
    row.result = "reference";
    if (objectives_.size() > 1) {
      row.detail = absl::StrCat("not comparable with those before: minimises ",
                                run.objective);
    }
    return absl::OkStatus();
  }
  const Reference& other = leads ? model->second : leader->second;
  ASSIGN_OR_RETURN(
      const ParityComparison comparison,
      CompareRuns(artifacts, other.artifacts, BoundsOf(run.job.precision())));
  Judge(comparison, leads, other.run, of, &row);
  return absl::OkStatus();
}

void ParityMatrix::Judge(const ParityComparison& comparison, bool leads,
                         int other, ParityClass* of, ParityRow* row) {
  const std::string against = absl::StrCat(" run ", other);
  if (comparison.is_identical()) {
    ++identical_;
    if (!leads) ++of->identical;
    row->result = absl::StrCat("identical to", against);
  } else if (leads && comparison.is_within_bounds()) {
    ++within_;
    row->result = absl::StrCat("within bounds of", against);
    row->detail = comparison.largest;
  } else {
    ++different_;
    row->result = absl::StrCat("DIFFERENT from", against);
    row->detail =
        leads ? comparison.broken
              : absl::StrCat("must be identical, but ", comparison.first);
  }
}

int ParityMatrix::refused() const {
  int refused = 0;
  for (const ParityRefusal& each : refusals_) refused += each.runs;
  return refused;
}

std::vector<std::string> ParityMatrix::EmptyCells() const {
  std::vector<std::string> empty;
  std::map<std::string, int> ran;  // axis -> how many values had a run
  for (const Cell& cell : cells_) {
    const std::string axis = cell.value.substr(0, cell.value.find('='));
    ran[axis] += cell.executed > 0;
    if (cell.executed == 0 && !absl::c_linear_search(kDivisions, axis)) {
      empty.push_back(absl::StrCat("nothing ran with ", cell.value));
    }
  }
  for (absl::string_view axis : kDivisions) {
    const auto it = ran.find(std::string(axis));
    if (it == ran.end() || it->second > 1) continue;
    empty.push_back(absl::StrCat("of ", axis, ", ", Count(it->second, "value"),
                                 " ran: nothing to compare"));
  }
  return empty;
}

bool ParityMatrix::holds() const {
  return executed_ > 0 && failed_ == 0 && different_ == 0 &&
         EmptyCells().empty();
}

std::string ParityMatrix::Summary() const {
  return absl::StrCat(
      Count(generated(), "combination"), " generated: ", refused(),
      " refused, ", executed_, " executed, ", failed_, " failed; of ",
      Count(static_cast<int>(leaders_.size()), "class"), ", ", identical_,
      " identical, ", within_, " within bounds, ", different_, " different, ",
      Count(objectives(), "reference"));
}

}  // namespace weft::client
