#include "client/parity_compare.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "client/params_diff.h"
#include "client/run_results.h"

namespace weft::client {
namespace {

constexpr double kBf16Roundoff = 1.0 / 256;

// A number of one step in both runs.
struct NumberPair {
  std::string name;
  double a = 0;
  double b = 0;

  double error() const { return RelativeTo(std::fabs(a - b), std::fabs(b)); }
  std::string Text(size_t step) const {
    return absl::StrFormat("%s of step %d is %.17g and %.17g", name, step, a,
                           b);
  }
};

// What a step minimises. Requires: as many router losses in both.
std::vector<NumberPair> LossesOf(const StepNumbers& a, const StepNumbers& b) {
  std::vector<NumberPair> losses = {{"loss", a.loss, b.loss},
                                    {"objective", a.objective, b.objective}};
  for (size_t i = 0; i < a.router_losses.size(); ++i) {
    const v1::RouterLoss& x = a.router_losses[i];
    losses.push_back({absl::StrCat(x.name(), " of layers.", x.layer()),
                      x.value(), b.router_losses[i].value()});
  }
  return losses;
}

// Steps and router losses must be as many in both.
absl::Status CheckShapes(const std::vector<StepNumbers>& a,
                         const std::vector<StepNumbers>& b) {
  if (a.empty() || a.size() != b.size()) {
    return absl::DataLossError(
        absl::StrCat("the runs logged ", a.size(), " and ", b.size(),
                     " steps; must be as many, at least one"));
  }
  for (size_t i = 0; i < a.size(); ++i) {
    const size_t x = a[i].router_losses.size();
    const size_t y = b[i].router_losses.size();
    if (x == y) continue;
    return absl::DataLossError(
        absl::StrCat("step ", i + 1, " has ", x, " and ", y, " router losses"));
  }
  return absl::OkStatus();
}

std::string FirstDifference(const std::vector<StepNumbers>& a,
                            const std::vector<StepNumbers>& b,
                            const ParamsDiff& gradients,
                            const ParamsDiff& parameters) {
  for (size_t i = 0; i < a.size(); ++i) {
    std::vector<NumberPair> numbers = LossesOf(a[i], b[i]);
    numbers.push_back({"gradient norm", a[i].grad_norm, b[i].grad_norm});
    for (const NumberPair& number : numbers) {
      if (number.a != number.b) return number.Text(i + 1);
    }
  }
  if (!gradients.identical()) return "gradient of " + gradients.first;
  return parameters.identical() ? "" : "parameter " + parameters.first;
}

// The tensor with the largest ||a - b|| / ||b||.
struct WorstTensor {
  std::string name;
  double error = 0;
  size_t element = 0;  // the one that is most off
  float a = 0;
  float b = 0;
};

void SetMostOff(const std::vector<float>& a, const std::vector<float>& b,
                WorstTensor* worst) {
  double most = -1;
  for (size_t i = 0; i < a.size(); ++i) {
    const double off = std::fabs(static_cast<double>(a[i]) - b[i]);
    if (!(off > most) && !std::isnan(off)) continue;
    worst->element = i;
    worst->a = a[i];
    worst->b = b[i];
    if (std::isnan(off)) return;
    most = off;
  }
}

absl::StatusOr<WorstTensor> FindWorst(const ParamFolder& a,
                                      const ParamFolder& b) {
  if (a.params().size() != b.params().size()) {
    return absl::DataLossError(absl::StrCat("there are gradients of ",
                                            a.params().size(), " and ",
                                            b.params().size(), " parameters"));
  }
  WorstTensor worst;
  for (const auto& [name, param] : b.params()) {
    ASSIGN_OR_RETURN(const std::vector<float> x, WholeParam(a, name));
    ASSIGN_OR_RETURN(const std::vector<float> y, WholeParam(b, name));
    if (x.size() != y.size()) {
      return absl::DataLossError(absl::StrCat(name, " has ", x.size(), " and ",
                                              y.size(), " elements"));
    }
    const double error = NormError(x, y);
    if (!worst.name.empty() && error <= worst.error) continue;
    worst.name = name;
    worst.error = error;
    SetMostOff(x, y, &worst);
  }
  return worst;
}

void CompareFirstStep(const StepNumbers& a, const StepNumbers& b,
                      const WorstTensor& gradients, const ParityBounds& bounds,
                      ParityComparison* comparison) {
  double largest = 0;
  for (const NumberPair& loss : LossesOf(a, b)) {
    largest = std::max(largest, loss.error());
    if (loss.error() <= bounds.losses || !comparison->broken.empty()) continue;
    comparison->broken =
        absl::StrFormat("%s: error %.1e, bound %.1e", loss.Text(1),
                        loss.error(), bounds.losses);
  }
  comparison->largest =
      absl::StrFormat("losses %.1e, gradients %.1e (%s)", largest,
                      gradients.error, gradients.name);
  if (!comparison->broken.empty() || gradients.error <= bounds.gradients) {
    return;
  }
  comparison->broken = absl::StrFormat(
      "gradient of %s: error %.1e, bound %.1e; most at element %d, which is "
      "%.9g and %.9g",
      gradients.name, gradients.error, bounds.gradients, gradients.element,
      gradients.a, gradients.b);
}

}  // namespace

ParityBounds BoundsOf(const v1::PrecisionConfig& precision) {
  ParityBounds bounds;
  if (precision.gradients() == v1::NUMBER_FORMAT_BF16) {
    bounds.gradients = 8 * kBf16Roundoff;
  }
  if (precision.compute() == v1::NUMBER_FORMAT_BF16) {
    bounds.gradients = 16 * kBf16Roundoff;
    bounds.losses = kBf16Roundoff;
  }
  return bounds;
}

absl::StatusOr<ParityComparison> CompareRuns(const std::string& a,
                                             const std::string& b,
                                             const ParityBounds& bounds) {
  ASSIGN_OR_RETURN(const auto steps_a, ReadSteps(a));
  ASSIGN_OR_RETURN(const auto steps_b, ReadSteps(b));
  RETURN_IF_ERROR(CheckShapes(steps_a, steps_b));
  ASSIGN_OR_RETURN(const auto gradients_a, ParamFolder::Open(a + "/gradients"));
  ASSIGN_OR_RETURN(const auto gradients_b, ParamFolder::Open(b + "/gradients"));
  ASSIGN_OR_RETURN(const auto parameters_a, ParamFolder::Open(a));
  ASSIGN_OR_RETURN(const auto parameters_b, ParamFolder::Open(b));
  ParityComparison comparison;
  comparison.first =
      FirstDifference(steps_a, steps_b, CompareParams(gradients_a, gradients_b),
                      CompareParams(parameters_a, parameters_b));
  if (comparison.is_identical()) return comparison;
  ASSIGN_OR_RETURN(const WorstTensor worst,
                   FindWorst(gradients_a, gradients_b));
  CompareFirstStep(steps_a[0], steps_b[0], worst, bounds, &comparison);
  return comparison;
}

}  // namespace weft::client
