#include "schedule/calibrate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "schedule/simulate.h"
#include "schedule/work_time.h"

namespace weft::schedule {
namespace {

constexpr int kTerms = 6;
using Terms = std::array<double, kTerms>;

// Of samples that differ in nothing, the first term explains all: sizes before
// what is fixed, so that other sizes are extrapolated in proportion.
Terms TermsOf(const OpSize& size) {
  return {size.flops,      size.attention_flops, size.bytes,
          size.wire_bytes, size.peers,           1};
}

OpCost CostOf(const Terms& x) {
  OpCost cost;
  cost.per_flop = x[0];
  cost.per_attention_flop = x[1];
  cost.per_byte = x[2];
  cost.per_wire_byte = x[3];
  cost.per_peer = x[4];
  cost.fixed = x[5];
  return cost;
}

struct Sample {
  Terms terms;
  double seconds = 0;
};

double Dot(const Terms& a, const Terms& b) {
  double sum = 0;
  for (int i = 0; i < kTerms; ++i) sum += a[i] * b[i];
  return sum;
}

Terms LargestOf(const std::vector<Sample>& samples) {
  Terms largest{};
  for (const Sample& sample : samples) {
    for (int i = 0; i < kTerms; ++i) {
      largest[i] = std::max(largest[i], sample.terms[i]);
    }
  }
  return largest;
}

// The normal equations of least squares: a x = b.
struct Equations {
  std::array<Terms, kTerms> a{};
  Terms b{};
};

// Solves the equations of the terms in `mask` alone, by elimination; the other
// terms are 0. False when they are, nearly, not independent.
bool Solve(const Equations& equations, unsigned mask, Terms* x) {
  constexpr double kSingular = 1e-11;
  std::vector<int> terms;
  for (int i = 0; i < kTerms; ++i) {
    if (mask >> i & 1) terms.push_back(i);
  }
  auto [a, b] = equations;
  for (size_t p = 0; p < terms.size(); ++p) {
    const int pivot = terms[p];
    if (a[pivot][pivot] <= kSingular * equations.a[pivot][pivot]) return false;
    for (size_t r = p + 1; r < terms.size(); ++r) {
      const int row = terms[r];
      const double factor = a[row][pivot] / a[pivot][pivot];
      for (int column : terms) a[row][column] -= factor * a[pivot][column];
      b[row] -= factor * b[pivot];
    }
  }
  *x = {};
  for (auto row = terms.rbegin(); row != terms.rend(); ++row) {
    (*x)[*row] = (b[*row] - Dot(a[*row], *x)) / a[*row][*row];
  }
  return true;
}

// The x >= 0 with the least sum of squares: the best of those that solve the
// equations of some terms. Of equals, the one of earlier terms.
Terms SolveNonNegative(const Equations& equations) {
  Terms best{};
  double least = 0;
  for (unsigned mask = 1; mask < 1u << kTerms; ++mask) {
    Terms x;
    if (!Solve(equations, mask, &x)) continue;
    if (*std::min_element(x.begin(), x.end()) < 0) continue;
    const double change = -Dot(equations.b, x);  // of the sum, from x = 0
    if (change >= least - 1e-9 * std::abs(least)) continue;
    least = change;
    best = x;
  }
  return best;
}

Terms NonNegativeLeastSquares(const std::vector<Sample>& samples,
                              const std::vector<double>& weights) {
  const Terms scale = LargestOf(samples);
  Equations equations;
  for (size_t s = 0; s < samples.size(); ++s) {
    Terms terms{};
    for (int i = 0; i < kTerms; ++i) {
      if (scale[i] > 0) terms[i] = samples[s].terms[i] / scale[i];
    }
    for (int i = 0; i < kTerms; ++i) {
      equations.b[i] += weights[s] * terms[i] * samples[s].seconds;
      for (int j = 0; j < kTerms; ++j) {
        equations.a[i][j] += weights[s] * terms[i] * terms[j];
      }
    }
  }
  Terms x = SolveNonNegative(equations);
  for (int i = 0; i < kTerms; ++i) {
    if (scale[i] > 0) x[i] /= scale[i];
  }
  return x;
}

// Fits seconds to sizes; see calibrate.h.
OpCost Fit(const std::vector<Sample>& samples) {
  constexpr int kRounds = 20;
  constexpr double kTiny = 1e-9;  // seconds
  std::vector<double> weights;
  for (const Sample& sample : samples) {
    const double seconds = std::max(sample.seconds, kTiny);
    weights.push_back(1 / (seconds * seconds));
  }
  Terms x{};
  for (int round = 0; round < kRounds; ++round) {
    x = NonNegativeLeastSquares(samples, weights);
    for (size_t s = 0; s < samples.size(); ++s) {
      const double predicted = std::max(Dot(samples[s].terms, x), kTiny);
      const double error = std::abs(samples[s].seconds - predicted) / predicted;
      weights[s] = 1 / (predicted * predicted * std::max(1.0, error));
    }
  }
  return CostOf(x);
}

// The mean of all but the largest tenth; 0 of none.
double TrimmedMean(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t kept = (values.size() * 9 + 9) / 10;
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) sum += values[i];
  return sum / static_cast<double>(kept);
}

std::map<std::string, std::vector<Sample>> SamplesOf(
    absl::Span<const MeasuredStep> steps, const Sharing& sharing) {
  std::map<std::string, std::vector<Sample>> samples;
  for (const MeasuredStep& step : steps) {
    const Plan& plan = *step.plan;
    const std::vector<std::vector<double>> work = WorkSeconds(step, sharing);
    for (size_t r = 0; r < step.ranks.size(); ++r) {
      for (int id = 0; id < plan.train.ops.size(); ++id) {
        const Op& op = plan.train.ops[id];
        if (op.kind == OpKind::kHostWait) continue;
        const OpSize size = SizeOf(plan, plan.train, op, step.ranks[r].rows);
        samples[ClassOf(plan, op)].push_back({TermsOf(size), work[r][id]});
      }
    }
  }
  return samples;
}

CostTable FitTable(absl::Span<const MeasuredStep> steps,
                   const Sharing& sharing) {
  CostTable table;
  table.sharing = sharing;
  for (const auto& [name, samples] : SamplesOf(steps, sharing)) {
    table.ops[name] = Fit(samples);
  }
  std::vector<double> waits;
  std::vector<double> outside;
  for (const MeasuredStep& step : steps) {
    const std::vector<double> of_step = WaitSeconds(step);
    waits.insert(waits.end(), of_step.begin(), of_step.end());
    outside.push_back(OutsideSeconds(step));
  }
  table.wait_seconds = TrimmedMean(std::move(waits));
  table.step_seconds = TrimmedMean(std::move(outside));
  return table;
}

void Scale(double factor, CostTable& table) {
  for (auto& [name, cost] : table.ops) {
    cost.fixed *= factor;
    cost.per_flop *= factor;
    cost.per_attention_flop *= factor;
    cost.per_byte *= factor;
    cost.per_wire_byte *= factor;
    cost.per_peer *= factor;
  }
}

// Logarithms of how much longer steps take than the simulated ones.
absl::StatusOr<std::vector<double>> LogRatios(
    absl::Span<const MeasuredStep> steps, const CostTable& table) {
  std::vector<double> ratios;
  for (const MeasuredStep& step : steps) {
    std::vector<RoutedRows> rows;
    for (const MeasuredRank& rank : step.ranks) rows.push_back(rank.rows);
    ASSIGN_OR_RETURN(const Simulation simulated,
                     Simulate(*step.plan, step.plan->train, table, rows));
    ratios.push_back(std::log(step.median_seconds / simulated.step_seconds));
  }
  return ratios;
}

absl::Status CheckStep(const MeasuredStep& step, size_t index) {
  const size_t world = step.plan->world.size;
  const bool has_time = step.step_seconds > 0 && step.median_seconds > 0;
  if (step.ranks.size() != world || !has_time) {
    return absl::InvalidArgumentError(absl::StrCat(
        "step ", index, " has ", step.ranks.size(), " ranks and took ",
        step.step_seconds, " seconds, the median ", step.median_seconds,
        "; must have ", world, " ranks and take longer than 0"));
  }
  for (const MeasuredRank& rank : step.ranks) {
    if (rank.spans.size() == step.plan->train.ops.size()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "step ", index, " has ", rank.spans.size(), " spans; its plan has ",
        step.plan->train.ops.size(), " ops"));
  }
  return absl::OkStatus();
}

// What to try: no bound on cores, or up to those of the smallest host.
std::vector<Sharing> SharingsToTry(absl::Span<const MeasuredStep> steps) {
  constexpr int kCores = 10;
  constexpr int kCrowdings = 10;
  constexpr double kCrowdingStep = 0.05;
  int cores = std::numeric_limits<int>::max();
  for (const MeasuredStep& step : steps) cores = std::min(cores, step.cores);
  std::vector<double> bounds = {0};
  if (cores > 0) bounds.push_back(1);
  for (int i = 1; i <= kCores && cores > 1; ++i) {
    bounds.push_back(1 + (cores - 1.0) * i / kCores);
  }
  std::vector<Sharing> tries;
  for (double bound : bounds) {
    for (int i = 0; i <= kCrowdings; ++i) {
      tries.push_back({bound, i * kCrowdingStep});
    }
  }
  return tries;
}

}  // namespace

double Median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

absl::StatusOr<CostTable> Calibrate(absl::Span<const MeasuredStep> steps) {
  if (steps.empty()) {
    return absl::InvalidArgumentError("no step to calibrate with");
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    RETURN_IF_ERROR(CheckStep(steps[i], i));
  }
  CostTable best;
  double level = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const Sharing& sharing : SharingsToTry(steps)) {
    CostTable table = FitTable(steps, sharing);
    ASSIGN_OR_RETURN(const std::vector<double> ratios, LogRatios(steps, table));
    const double median = Median(ratios);
    double distance = 0;
    for (double ratio : ratios) distance += std::abs(ratio - median);
    if (distance >= least) continue;
    least = distance;
    level = median;
    best = std::move(table);
  }
  Scale(std::exp(level), best);
  return best;
}

}  // namespace weft::schedule
