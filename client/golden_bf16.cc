#include "client/golden_bf16.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/golden_tensors.h"
#include "client/run_results.h"

namespace weft::client {
namespace {

constexpr double kLossBound = 1e-2;
constexpr double kGradientBound = 3e-2;

GoldenRow CompareLosses(const GoldenCase& golden,
                        const std::vector<StepNumbers>& steps) {
  GoldenRow row = {"losses in bf16", "", 0, kLossBound};
  for (size_t i = 0; i < steps.size(); ++i) {
    const double expected = golden.steps[i].loss;
    const double error =
        RelativeTo(std::fabs(steps[i].loss - expected), std::fabs(expected));
    if (!row.worst.empty() && error <= row.error) continue;
    row.error = error;
    row.worst = absl::StrCat("step ", i + 1);
  }
  return row;
}

double SquareOfDifference(const TensorPair& tensor) {
  double sum = 0;
  for (size_t i = 0; i < tensor.expected.size(); ++i) {
    const double error = double{tensor.actual[i]} - tensor.expected[i];
    sum += error * error;
  }
  return sum;
}

// Names the tensor that adds most to the error.
GoldenRow CompareGradients(const std::vector<TensorPair>& tensors) {
  GoldenRow row = {"all gradients in bf16", "", 0, kGradientBound};
  double error = 0;
  double size = 0;
  double most = -1;
  for (const TensorPair& tensor : tensors) {
    const double of_tensor = SquareOfDifference(tensor);
    error += of_tensor;
    for (float x : tensor.expected) size += double{x} * x;
    if (of_tensor <= most) continue;
    most = of_tensor;
    row.worst = tensor.name;
  }
  row.error = RelativeTo(std::sqrt(error), std::sqrt(size));
  return row;
}

}  // namespace

v1::TrainingJob MakeRecordingJob(v1::TrainingJob job) {
  job.clear_output();
  job.mutable_output()->set_routing(true);
  return job;
}

v1::TrainingJob MakeBf16Job(v1::TrainingJob job, const std::string& routing) {
  job.clear_output();
  job.mutable_output()->set_gradients_step(1);
  job.mutable_precision()->set_compute(v1::NUMBER_FORMAT_BF16);
  job.set_replay_routing(routing);
  return job;
}

absl::StatusOr<std::vector<GoldenRow>> CheckBf16(const GoldenCase& golden,
                                                 const std::string& artifacts) {
  ASSIGN_OR_RETURN(const std::vector<StepNumbers> steps, ReadSteps(artifacts));
  if (steps.size() != golden.steps.size()) {
    return absl::DataLossError(absl::StrCat(artifacts, ": the job logged ",
                                            steps.size(), " steps of ",
                                            golden.steps.size()));
  }
  ASSIGN_OR_RETURN(
      const std::vector<TensorPair> gradients,
      ReadTensorPairs(golden, artifacts + "/gradients", kGradientTensors));
  return std::vector<GoldenRow>{CompareLosses(golden, steps),
                                CompareGradients(gradients)};
}

}  // namespace weft::client
