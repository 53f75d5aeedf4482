#include "client/golden_tensors.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
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
      const SafetensorsView* view = reference.Find(slice.name);
      if (view == nullptr || view->type != checkpoint::SafetensorsType::kF32 ||
          view->shape != slice.shape) {
        return absl::DataLossError(absl::StrCat(reference.path(),
                                                ": has no F32 ", slice.name,
                                                " of the model's shape"));
      }
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

absl::StatusOr<std::vector<TensorPair>> ReadTensorPairs(
    const GoldenCase& golden, const std::string& written,
    const std::string& reference) {
  ASSIGN_OR_RETURN(const ParamFolder folder, ParamFolder::Open(written));
  ASSIGN_OR_RETURN(const SafetensorsFile file,
                   SafetensorsFile::Open(golden.folder + "/" + reference));
  std::vector<TensorPair> pairs;
  for (const model::ParamDecl& param : golden.params) {
    ASSIGN_OR_RETURN(const std::vector<TensorSlice> slices,
                     golden.names(param));
    ASSIGN_OR_RETURN(const std::vector<float> whole,
                     WholeParam(folder, param.name), _ << written);
    RETURN_IF_ERROR(Annotate(AddTensors(slices, whole, file, pairs), written));
  }
  if (file.tensors().size() != pairs.size()) {
    return absl::DataLossError(
        absl::StrCat(file.path(), ": has ", file.tensors().size(),
                     " tensors; the model has ", pairs.size()));
  }
  return pairs;
}

}  // namespace weft::client
