#include "client/golden_tensors.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "checkpoint/format/safetensors_file.h"
#include "client/golden_files.h"
#include "client/params_diff.h"
#include "client/run_results.h"

namespace weft::client {
namespace {

using checkpoint::SafetensorsFile;
using checkpoint::SafetensorsView;
using checkpoint::TensorSlice;

// DATA_LOSS unless the reference has the tensor that `slice` is of.
absl::StatusOr<const SafetensorsView*> FindTensor(
    const SafetensorsFile& reference, const TensorSlice& slice) {
  const SafetensorsView* view = reference.Find(slice.name);
  if (view != nullptr && view->type == checkpoint::SafetensorsType::kF32 &&
      view->shape == slice.shape) {
    return view;
  }
  const std::string is =
      view == nullptr ? "absent"
                      : absl::StrCat(Name(view->type), " [",
                                     absl::StrJoin(view->shape, ", "), "]");
  return absl::DataLossError(
      absl::StrCat(reference.path(), ": ", slice.name, " is ", is,
                   "; a reference model has it as F32 [",
                   absl::StrJoin(slice.shape, ", "), "]"));
}

// What a file of the reference holds.
std::vector<model::ParamDecl> ParamsIn(const GoldenCase& golden,
                                       absl::string_view file) {
  std::vector<model::ParamDecl> params = golden.params;
  if (file == kGradientTensors) return params;
  params.insert(params.end(), golden.biases.begin(), golden.biases.end());
  return params;
}

// Biases of experts that lie beside gradients, although they have none.
absl::StatusOr<size_t> CountBiases(const GoldenCase& golden,
                                   const SafetensorsFile& reference) {
  size_t found = 0;
  for (const model::ParamDecl& bias : golden.biases) {
    ASSIGN_OR_RETURN(const std::vector<TensorSlice> slices, golden.names(bias));
    if (reference.Find(slices.front().name) != nullptr) ++found;
  }
  return found;
}

// Checks that the file `name` has no tensors but `expected` of them.
absl::Status CheckCount(const GoldenCase& golden, absl::string_view name,
                        const SafetensorsFile& reference, size_t expected) {
  if (name == kGradientTensors) {
    ASSIGN_OR_RETURN(const size_t biases, CountBiases(golden, reference));
    expected += biases;
  }
  if (reference.tensors().size() == expected) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(reference.path(), ": has ", reference.tensors().size(),
                   " tensors; the model has ", expected));
}

absl::Status CheckTensors(const GoldenCase& golden, absl::string_view name,
                          const SafetensorsFile& reference) {
  std::set<std::string> names;
  for (const model::ParamDecl& param : ParamsIn(golden, name)) {
    ASSIGN_OR_RETURN(const std::vector<TensorSlice> slices,
                     golden.names(param));
    for (const TensorSlice& slice : slices) {
      RETURN_IF_ERROR(FindTensor(reference, slice).status());
      names.insert(slice.name);
    }
  }
  return CheckCount(golden, name, reference, names.size());
}

// Adds the tensors of a parameter, whose elements are `whole`.
absl::Status AddTensors(const std::vector<TensorSlice>& slices,
                        const std::vector<float>& whole,
                        const SafetensorsFile& reference,
                        std::vector<TensorPair>& pairs) {
  std::map<std::string, size_t> places;
  int64_t begin = 0;
  for (const TensorSlice& slice : slices) {
    const auto [place, is_new] = places.emplace(slice.name, pairs.size());
    if (is_new) {
      ASSIGN_OR_RETURN(const SafetensorsView* view,
                       FindTensor(reference, slice));
      pairs.push_back({slice.name, {}, FloatsOf(*view)});
      pairs.back().actual.resize(pairs.back().expected.size());
    }
    if (begin + slice.elements > static_cast<int64_t>(whole.size())) {
      return absl::DataLossError(absl::StrCat(slice.name, ": the job wrote ",
                                              whole.size(), " elements only"));
    }
    std::copy_n(whole.begin() + begin, slice.elements,
                pairs[place->second].actual.begin() + slice.begin);
    begin += slice.elements;
  }
  if (begin == static_cast<int64_t>(whole.size())) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(slices.front().name,
                                          ": the job wrote ", whole.size(),
                                          " elements, not ", begin));
}

}  // namespace

absl::Status CheckReference(const GoldenCase& golden) {
  for (const char* name : {kInitialTensors, kGradientTensors, kFinalTensors}) {
    ASSIGN_OR_RETURN(const SafetensorsFile file,
                     SafetensorsFile::Open(golden.folder + "/" + name),
                     _ << "a reference model has " << name);
    RETURN_IF_ERROR(CheckTensors(golden, name, file));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TensorPair>> ReadTensorPairs(
    const GoldenCase& golden, const std::string& written,
    const std::string& reference) {
  ASSIGN_OR_RETURN(const ParamFolder folder, ParamFolder::Open(written));
  ASSIGN_OR_RETURN(const SafetensorsFile file,
                   SafetensorsFile::Open(golden.folder + "/" + reference));
  std::vector<TensorPair> pairs;
  for (const model::ParamDecl& param : ParamsIn(golden, reference)) {
    ASSIGN_OR_RETURN(const std::vector<TensorSlice> slices,
                     golden.names(param));
    ASSIGN_OR_RETURN(const std::vector<float> whole,
                     WholeParam(folder, param.name), _ << written);
    RETURN_IF_ERROR(Annotate(AddTensors(slices, whole, file, pairs), written));
  }
  RETURN_IF_ERROR(CheckCount(golden, reference, file, pairs.size()));
  return pairs;
}

}  // namespace weft::client
