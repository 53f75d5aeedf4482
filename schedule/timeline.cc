#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/logging.h"
#include "schedule/op_name.h"
#include "schedule/plan.h"
#include "schedule/simulate.h"

namespace weft::schedule {
namespace {

// Longer timelines are cut.
constexpr size_t kMaxBlocks = 100;

// When each op runs on a modelled device, with balanced routing.
std::vector<OpTime> ModelledTimes(const Plan& plan, const Program& program) {
  absl::StatusOr<Simulation> simulated =
      Simulate(plan, program, ModelledCosts(plan, program),
               {BalancedRows(plan, program)});
  CHECK(simulated.ok()) << simulated.status();  // the table is the program's
  return std::move(simulated->ranks.front());
}

// An op as it is drawn.
struct Cell {
  int row = 0;  // stream
  std::string label;
  OpTime time;
};

// "[F1 L0.attn]" for the op "F1 layers.0.attention".
std::string Label(const Plan& plan, const Op& op) {
  const std::string name = OpName(plan.model, plan.units, op);
  return absl::StrCat("[",
                      absl::StrReplaceAll(name, {{"layers.", "L"},
                                                 {".attention", ".attn"},
                                                 {".pre_dispatch", ".route"},
                                                 {"embedding.embedding", "emb"},
                                                 {"head.head", "head"},
                                                 {"head.loss", "loss"}}),
                      "]");
}

std::vector<Cell> Cells(const Plan& plan, const Program& program) {
  const std::vector<OpTime> times = ModelledTimes(plan, program);
  std::vector<Cell> cells;
  for (int id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    if (times[id].end <= times[id].begin) continue;
    cells.push_back({static_cast<int>(op.stream), Label(plan, op), times[id]});
  }
  return cells;
}

// Column of every moment at which an op begins or ends: as far left as leaves
// each cell as wide as its label.
std::map<double, int> Columns(const std::vector<Cell>& cells) {
  std::map<double, std::vector<const Cell*>> ending;
  for (const Cell& cell : cells) {
    ending[cell.time.begin];
    ending[cell.time.end].push_back(&cell);
  }
  std::map<double, int> columns;
  int column = -1;
  for (const auto& [moment, ended] : ending) {
    ++column;
    for (const Cell* cell : ended) {
      const int width = static_cast<int>(cell->label.size());
      column = std::max(column, columns.at(cell->time.begin) + width);
    }
    columns[moment] = column;
  }
  return columns;
}

std::array<std::string, kNumStreams> Rows(const std::vector<Cell>& cells) {
  const std::map<double, int> columns = Columns(cells);
  std::array<std::string, kNumStreams> rows;
  for (const Cell& cell : cells) {
    const int begin = columns.at(cell.time.begin);
    const int end = columns.at(cell.time.end);
    std::string& row = rows[cell.row];
    row.resize(begin, ' ');
    row += cell.label;
    row.pop_back();
    row.resize(end - 1, '-');
    row += ']';
  }
  return rows;
}

}  // namespace

std::string DrawTimeline(const Plan& plan, const Program& program,
                         int max_columns) {
  constexpr int kNameColumns = 9;  // "compute |"
  const std::array<std::string, kNumStreams> rows = Rows(Cells(plan, program));
  size_t columns = 0;
  for (const std::string& row : rows) columns = std::max(columns, row.size());
  const size_t width = std::max(max_columns - kNameColumns, 1);
  std::string text =
      "F forward, B data gradient, W weight gradient, each of the microbatch "
      "that follows;\n"
      "side by side in time, lengths not to scale.\n\n";
  for (size_t begin = 0; begin < columns; begin += width) {
    if (begin / width == kMaxBlocks) {
      absl::StrAppend(&text, "... and ", (columns - begin - 1) / width + 1,
                      " more blocks: draw a job of fewer layers or "
                      "microbatches\n");
      break;
    }
    if (begin > 0) text += '\n';
    for (int s = 0; s < kNumStreams; ++s) {
      const std::string& row = rows[s];
      std::string line = absl::StrFormat(
          "%-8s|%s", Name(static_cast<StreamKind>(s)),
          begin < row.size() ? row.substr(begin, width) : std::string());
      line.erase(line.find_last_not_of(' ') + 1);
      absl::StrAppend(&text, line, "\n");
    }
  }
  return text;
}

}  // namespace weft::schedule
