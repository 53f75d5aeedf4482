#include "client/golden_check.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "checkpoint/format/hugging_face_names.h"
#include "checkpoint/format/safetensors_file.h"
#include "client/params_diff.h"
#include "client/run_results.h"
#include "schedule/plan.h"

namespace weft::client {
namespace {

using checkpoint::SafetensorsFile;
using checkpoint::SafetensorsView;

// Keeps the row's largest error.
void Worsen(GoldenRow& row, const std::string& where, double error) {
  if (!row.worst.empty() && error <= row.error) return;
  row.error = error;
  row.worst = where;
}

GoldenRow CompareNumbers(const std::string& check,
                         const std::vector<double>& actual,
                         const std::vector<double>& expected, double bound) {
  GoldenRow row = {check, "", 0, bound};
  for (size_t i = 0; i < expected.size(); ++i) {
    Worsen(
        row, absl::StrCat("step ", i + 1),
        RelativeTo(std::fabs(actual[i] - expected[i]), std::fabs(expected[i])));
  }
  return row;
}

absl::StatusOr<std::vector<float>> Tensor(const SafetensorsFile& file,
                                          const checkpoint::HfTensor& tensor) {
  const SafetensorsView* view = file.Find(tensor.name);
  if (view == nullptr || view->type != checkpoint::SafetensorsType::kF32 ||
      view->shape != tensor.shape) {
    return absl::DataLossError(absl::StrCat(
        file.path(), ": has no F32 ", tensor.name, " of the model's shape"));
  }
  std::vector<float> values(view->elements());
  std::memcpy(values.data(), view->bytes.data(), view->bytes.size());
  return values;
}

// Compares every tensor of the checkpoint's names with what the job wrote.
absl::StatusOr<GoldenRow> CompareTensors(const GoldenCase& golden,
                                         const schedule::Plan& plan,
                                         GoldenRow row,
                                         const std::string& written,
                                         const std::string& reference,
                                         const SafetensorsFile* from) {
  ASSIGN_OR_RETURN(const ParamFolder folder, ParamFolder::Open(written));
  ASSIGN_OR_RETURN(const auto file,
                   SafetensorsFile::Open(golden.folder + "/" + reference));
  for (const auto& param : plan.model.params) {
    ASSIGN_OR_RETURN(const auto tensors,
                     checkpoint::HfTensorsOf(golden.config.family,
                                             golden.config.model, param));
    ASSIGN_OR_RETURN(const std::vector<float> whole,
                     WholeParam(folder, param.name), _ << written);
    int64_t elements = 0;
    for (const auto& tensor : tensors) elements += tensor.elements();
    if (elements != static_cast<int64_t>(whole.size())) {
      return absl::DataLossError(absl::StrCat(written, ": ", param.name,
                                              " has ", whole.size(),
                                              " elements, not ", elements));
    }
    int64_t begin = 0;
    for (const auto& tensor : tensors) {
      ASSIGN_OR_RETURN(const auto expected, Tensor(file, tensor));
      std::vector<float> base;
      if (from != nullptr) {
        ASSIGN_OR_RETURN(base, Tensor(*from, tensor));
      }
      Worsen(row, tensor.name,
             NormError(absl::MakeSpan(whole).subspan(begin, tensor.elements()),
                       expected, base));
      begin += tensor.elements();
    }
  }
  return row;
}

}  // namespace

absl::StatusOr<std::vector<GoldenRow>> CheckGolden(const GoldenCase& golden,
                                                   const std::string& artifacts,
                                                   const GoldenBounds& bounds) {
  ASSIGN_OR_RETURN(const StepNumbers steps, ReadSteps(artifacts));
  if (steps.losses.size() != golden.losses.size()) {
    return absl::DataLossError(absl::StrCat(artifacts, ": the job logged ",
                                            steps.losses.size(), " steps of ",
                                            golden.losses.size()));
  }
  ASSIGN_OR_RETURN(const v1::TrainingJob job, MakeGoldenJob(golden, {}, ""));
  const schedule::Plan plan = schedule::Declare(job);
  ASSIGN_OR_RETURN(const auto initial,
                   SafetensorsFile::Open(golden.folder + "/model.safetensors"));
  std::vector<GoldenRow> rows;
  rows.push_back(
      CompareNumbers("losses", steps.losses, golden.losses, bounds.losses));
  rows.push_back(CompareNumbers("gradient norms", steps.grad_norms,
                                golden.grad_norms, bounds.norms));
  ASSIGN_OR_RETURN(
      GoldenRow gradients,
      CompareTensors(golden, plan, {"gradients", "", 0, bounds.gradients},
                     artifacts + "/gradients", "grads_step0.safetensors",
                     nullptr));
  rows.push_back(std::move(gradients));
  ASSIGN_OR_RETURN(
      GoldenRow change,
      CompareTensors(golden, plan,
                     {"change of parameters", "", 0, bounds.change}, artifacts,
                     "params_step3.safetensors", &initial));
  rows.push_back(std::move(change));
  return rows;
}

}  // namespace weft::client
