#include "client/golden_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "client/golden_taps.h"
#include "client/golden_tensors.h"
#include "client/run_results.h"

namespace weft::client {
namespace {

// Keeps the row's largest error.
void Worsen(GoldenRow& row, const std::string& where, double error) {
  if (!row.worst.empty() && error <= row.error) return;
  row.error = error;
  row.worst = where;
}

void CompareNumber(GoldenRow& row, const std::string& where, double actual,
                   double expected) {
  Worsen(row, where,
         RelativeTo(std::fabs(actual - expected), std::fabs(expected)));
}

// Requires: as many steps as the case has.
std::vector<GoldenRow> CompareSteps(const GoldenCase& golden,
                                    const std::vector<StepNumbers>& steps) {
  GoldenRow losses = {"losses", "", 0, golden.bounds.losses};
  GoldenRow norms = {"gradient norms", "", 0, golden.bounds.norms};
  GoldenRow objective = {"objective", "", 0, golden.bounds.losses};
  for (size_t i = 0; i < steps.size(); ++i) {
    const GoldenStep& expected = golden.steps[i];
    const std::string where = absl::StrCat("step ", i + 1);
    CompareNumber(losses, where, steps[i].loss, expected.loss);
    CompareNumber(norms, where, steps[i].grad_norm, expected.grad_norm);
    if (!expected.objective.has_value()) continue;
    CompareNumber(objective, where, steps[i].objective, *expected.objective);
  }
  std::vector<GoldenRow> rows = {losses, norms};
  if (!objective.worst.empty()) rows.push_back(objective);
  return rows;
}

const v1::RouterLoss* FindLoss(const std::vector<v1::RouterLoss>& losses,
                               const v1::RouterLoss& like) {
  for (const v1::RouterLoss& loss : losses) {
    if (loss.layer() == like.layer() && loss.name() == like.name()) {
      return &loss;
    }
  }
  return nullptr;
}

// DATA_LOSS when the two sides do not have the same losses.
absl::StatusOr<std::vector<GoldenRow>> CompareRouterLosses(
    const GoldenCase& golden, const std::vector<StepNumbers>& steps) {
  GoldenRow first = {"router losses", "", 0, golden.bounds.losses};
  GoldenRow later = {"router losses, later steps", "", 0,
                     golden.bounds.later_router_losses};
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::vector<v1::RouterLoss>& expected = golden.steps[i].router_losses;
    if (steps[i].router_losses.size() != expected.size()) {
      return absl::DataLossError(absl::StrCat(
          "step ", i + 1, " logged ", steps[i].router_losses.size(),
          " router losses of ", expected.size()));
    }
    for (const v1::RouterLoss& loss : expected) {
      const std::string where = absl::StrCat("step ", i + 1, " layers.",
                                             loss.layer(), " ", loss.name());
      const v1::RouterLoss* actual = FindLoss(steps[i].router_losses, loss);
      if (actual == nullptr) {
        return absl::DataLossError(absl::StrCat(where, " was not logged"));
      }
      CompareNumber(i == 0 ? first : later, where, actual->value(),
                    loss.value());
    }
  }
  std::vector<GoldenRow> rows = {first};
  if (!later.worst.empty()) rows.push_back(later);
  return rows;
}

GoldenRow CompareGradients(const std::vector<TensorPair>& tensors,
                           double bound) {
  GoldenRow row = {"gradients", "", 0, bound};
  for (const TensorPair& tensor : tensors) {
    Worsen(row, tensor.name, NormError(tensor.actual, tensor.expected));
  }
  return row;
}

bool ChangesCoarsely(absl::string_view tensor) {
  return absl::EndsWith(tensor, ".A_log") || absl::EndsWith(tensor, ".D") ||
         absl::EndsWith(tensor, ".dt_bias");
}

// Requires: `initial` are the same tensors.
std::vector<GoldenRow> CompareChange(const std::vector<TensorPair>& tensors,
                                     const std::vector<TensorPair>& initial,
                                     const GoldenBounds& bounds) {
  GoldenRow fine = {"change of parameters", "", 0, *bounds.change};
  GoldenRow coarse = {"change of A_log, dt_bias, D", "", 0,
                      bounds.coarse_change};
  for (size_t i = 0; i < tensors.size(); ++i) {
    Worsen(
        ChangesCoarsely(tensors[i].name) ? coarse : fine, tensors[i].name,
        NormError(tensors[i].actual, tensors[i].expected, initial[i].expected));
  }
  std::vector<GoldenRow> rows = {fine};
  if (!coarse.worst.empty()) rows.push_back(coarse);
  return rows;
}

// An element and how far it is off.
struct ElementError {
  double error;
  const TensorPair* tensor;
  size_t element;

  std::string Where() const {
    return absl::StrCat(tensor->name, " element ", element);
  }
};

// The largest error of all elements, and that of all but the largest few.
std::vector<GoldenRow> CompareElements(const std::vector<TensorPair>& tensors,
                                       const GoldenBounds& bounds) {
  std::vector<ElementError> errors;
  for (const TensorPair& tensor : tensors) {
    for (size_t i = 0; i < tensor.expected.size(); ++i) {
      const double error =
          std::fabs(double{tensor.actual[i]} - tensor.expected[i]);
      errors.push_back(
          {std::isnan(error) ? std::numeric_limits<double>::infinity() : error,
           &tensor, i});
    }
  }
  std::sort(errors.begin(), errors.end(),
            [](const ElementError& a, const ElementError& b) {
              return a.error > b.error;
            });
  const ElementError& worst = errors.front();
  std::vector<GoldenRow> rows = {
      {"parameters", worst.Where(), worst.error, bounds.spared_parameters}};
  if (bounds.spared < static_cast<int64_t>(errors.size())) {
    const ElementError& next = errors[bounds.spared];
    rows.push_back({absl::StrCat("parameters but for ", bounds.spared),
                    next.Where(), next.error, *bounds.parameters});
  }
  return rows;
}

absl::StatusOr<std::vector<GoldenRow>> CompareParameters(
    const GoldenCase& golden, const std::string& artifacts) {
  ASSIGN_OR_RETURN(
      const std::vector<TensorPair> tensors,
      ReadTensorPairs(golden, artifacts + "/parameters", kFinalTensors));
  std::vector<GoldenRow> rows;
  if (golden.bounds.change.has_value()) {
    ASSIGN_OR_RETURN(
        const std::vector<TensorPair> initial,
        ReadTensorPairs(golden, artifacts + "/parameters", kInitialTensors));
    rows = CompareChange(tensors, initial, golden.bounds);
  }
  if (golden.bounds.parameters.has_value()) {
    for (GoldenRow& row : CompareElements(tensors, golden.bounds)) {
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

// The error is the number of tokens that went to other experts.
GoldenRow CompareRouting(const GoldenCase& golden, std::vector<int32_t> actual,
                         const TappedValue& value) {
  const int64_t length = golden.job.data().sequence_length();
  GoldenRow row = {"routing", "", 0, 0};
  std::vector<int32_t> expected = golden.routing;
  const int64_t k = value.columns;
  for (int64_t token = 0; token * k < static_cast<int64_t>(expected.size());
       ++token) {
    const auto ours = actual.begin() + token * k;
    const auto theirs = expected.begin() + token * k;
    std::sort(ours, ours + k);
    std::sort(theirs, theirs + k);
    if (std::equal(ours, ours + k, theirs)) continue;
    if (row.error++ > 0) continue;
    row.worst = absl::StrCat(value.name, " of sequence ", token / length,
                             ", position ", token % length);
  }
  return row;
}

// Tokens of each expert, of `experts` chosen ones.
absl::StatusOr<std::vector<int64_t>> CountTokens(
    absl::Span<const int32_t> chosen, int64_t experts) {
  std::vector<int64_t> counts(experts);
  for (int32_t expert : chosen) {
    if (expert < 0 || expert >= experts) {
      return absl::DataLossError(absl::StrCat("has expert ", expert));
    }
    ++counts[expert];
  }
  return counts;
}

// Logits and routing of the sequences that the case knows.
absl::StatusOr<std::vector<GoldenRow>> CompareTaps(
    const GoldenCase& golden, const v1::TrainingJob& job,
    const std::string& artifacts) {
  const int64_t length = job.data().sequence_length();
  std::vector<GoldenRow> rows;
  if (!golden.logits.empty()) {
    const TappedValue value = LogitsOf(golden);
    const int64_t elements = length * value.columns;  // of a sequence
    const int64_t sequences = golden.logits.size() / elements;
    ASSIGN_OR_RETURN(const std::vector<float> logits,
                     ReadTappedFloats(job, artifacts, value, sequences));
    rows.push_back({"logits", "", 0, golden.bounds.logits});
    for (int64_t i = 0; i < sequences; ++i) {
      Worsen(
          rows.back(), absl::StrCat("sequence ", i),
          NormError(
              absl::MakeSpan(logits).subspan(i * elements, elements),
              absl::MakeSpan(golden.logits).subspan(i * elements, elements)));
    }
  }
  if (!golden.routing.empty()) {
    const TappedValue value = RoutingOf(golden, golden.RoutedLayers().front());
    const int64_t tokens = golden.routing.size() / value.columns;
    ASSIGN_OR_RETURN(std::vector<int32_t> routing,
                     ReadTappedIndices(job, artifacts, value, tokens / length));
    rows.push_back(CompareRouting(golden, std::move(routing), value));
  }
  return rows;
}

bool HasRouterLosses(const GoldenCase& golden) {
  return std::any_of(
      golden.steps.begin(), golden.steps.end(),
      [](const GoldenStep& step) { return !step.router_losses.empty(); });
}

}  // namespace

absl::StatusOr<GoldenRow> CheckExpertTokens(const GoldenCase& golden,
                                            const v1::TrainingJob& job,
                                            const std::string& artifacts,
                                            int64_t step) {
  GoldenRow row = {absl::StrCat("tokens per expert, step ", step), "", 0, 0};
  const auto& expected = golden.steps[step - 1].expert_tokens;
  const std::vector<int64_t> layers = golden.RoutedLayers();
  const int64_t experts = golden.job.model().moe().num_experts();
  for (size_t l = 0; l < layers.size(); ++l) {
    const TappedValue value = RoutingOf(golden, layers[l]);
    ASSIGN_OR_RETURN(const std::vector<int32_t> chosen,
                     ReadTappedIndices(job, artifacts, value, golden.batch));
    absl::Span<const int32_t> left = chosen;
    for (size_t m = 0; m < expected.size(); ++m) {
      const size_t size =
          golden.microbatches[m] * job.data().sequence_length() * value.columns;
      ASSIGN_OR_RETURN(const std::vector<int64_t> counts,
                       CountTokens(left.first(size), experts),
                       _ << artifacts << ": " << value.name);
      left.remove_prefix(size);
      const int64_t tokens =
          golden.microbatches[m] * job.data().sequence_length();
      for (int64_t e = 0; e < experts; ++e) {
        const int64_t taken = golden.TokensOfExpert(counts[e], tokens);
        if (taken == expected[m][l][e] || row.error++ > 0) continue;
        row.worst =
            absl::StrCat("microbatch ", m, " layers.", layers[l], " expert ", e,
                         ": ", taken, " of ", expected[m][l][e]);
      }
    }
  }
  return row;
}

absl::StatusOr<std::vector<GoldenRow>> CheckGolden(
    const GoldenCase& golden, const v1::TrainingJob& job,
    const std::string& artifacts) {
  ASSIGN_OR_RETURN(const std::vector<StepNumbers> steps, ReadSteps(artifacts));
  if (steps.size() != golden.steps.size()) {
    return absl::DataLossError(absl::StrCat(artifacts, ": the job logged ",
                                            steps.size(), " steps of ",
                                            golden.steps.size()));
  }
  std::vector<GoldenRow> rows = CompareSteps(golden, steps);
  if (HasRouterLosses(golden)) {
    ASSIGN_OR_RETURN(const std::vector<GoldenRow> of_routers,
                     CompareRouterLosses(golden, steps), _ << artifacts);
    rows.insert(rows.end(), of_routers.begin(), of_routers.end());
  }
  ASSIGN_OR_RETURN(const std::vector<GoldenRow> taps,
                   CompareTaps(golden, job, artifacts));
  rows.insert(rows.end(), taps.begin(), taps.end());
  if (!golden.steps.front().expert_tokens.empty()) {
    ASSIGN_OR_RETURN(GoldenRow row,
                     CheckExpertTokens(golden, job, artifacts, /*step=*/1));
    rows.push_back(std::move(row));
  }
  ASSIGN_OR_RETURN(
      const std::vector<TensorPair> gradients,
      ReadTensorPairs(golden, artifacts + "/gradients", kGradientTensors));
  rows.push_back(CompareGradients(gradients, golden.bounds.gradients));
  ASSIGN_OR_RETURN(const std::vector<GoldenRow> parameters,
                   CompareParameters(golden, artifacts));
  rows.insert(rows.end(), parameters.begin(), parameters.end());
  return rows;
}

}  // namespace weft::client
