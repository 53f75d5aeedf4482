#include "checkpoint/checkpoint_tensors.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "checkpoint/format/safetensors_float.h"

namespace weft::checkpoint {
namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// What is wrong with tensors, by kind.
class Problems {
 public:
  void Add(const char* kind, std::string what) {
    by_kind_[kind].push_back(std::move(what));
  }
  bool IsEmpty() const { return by_kind_.empty(); }

  // "missing: a, b and 3 more; left over: c"
  std::string Text() const {
    std::vector<std::string> parts;
    for (const auto& [kind, all] : by_kind_) {
      const size_t shown = std::min<size_t>(all.size(), 8);
      const std::vector<std::string> first(all.begin(), all.begin() + shown);
      std::string text = absl::StrCat(kind, ": ", absl::StrJoin(first, ", "));
      if (shown < all.size()) {
        absl::StrAppend(&text, " and ", all.size() - shown, " more");
      }
      parts.push_back(std::move(text));
    }
    return absl::StrJoin(parts, "; ");
  }

 private:
  std::map<std::string, std::vector<std::string>> by_kind_;
};

// Adds what is wrong with `found`, the tensor in the files, null when there is
// none, of which `slice` should be a part.
void CheckTensor(const TensorSlice& slice, const SafetensorsView* found,
                 Problems& problems) {
  if (found == nullptr) {
    problems.Add("missing", slice.name);
  } else if (found->shape != slice.shape) {
    problems.Add("of another shape",
                 absl::StrCat(slice.name, " ", ShapeText(found->shape),
                              " (must be ", ShapeText(slice.shape), ")"));
  } else if (!IsReadAsF32(found->type)) {
    problems.Add("of another type than F32, BF16 or F16",
                 absl::StrCat(slice.name, " ", Name(found->type)));
  }
}

// DATA_LOSS when one of `values`, elements from `first` on of a tensor, is no
// finite number.
absl::Status CheckFinite(absl::Span<const float> values,
                         const SafetensorsView& tensor, int64_t first) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return absl::DataLossError(absl::StrCat(
        "tensor ", tensor.name, " ", ShapeText(tensor.shape), " has ",
        values[i], " as element ", first + static_cast<int64_t>(i),
        "; weights must be finite"));
  }
  return absl::OkStatus();
}

}  // namespace

CheckpointTensors::CheckpointTensors(std::string folder,
                                     std::vector<SafetensorsFile> files,
                                     TensorNames names)
    : folder_(std::move(folder)),
      files_(std::move(files)),
      names_(std::move(names)) {
  for (const SafetensorsFile& file : files_) {
    for (const SafetensorsView& tensor : file.tensors()) {
      tensors_[tensor.name] = &tensor;
    }
  }
}

const SafetensorsView* CheckpointTensors::Find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : it->second;
}

absl::Status CheckpointTensors::Check(
    const model::ModelDecl& decl, const std::set<std::string>& spare) const {
  Problems problems;
  std::set<std::string> known = spare;
  std::vector<model::ParamDecl> params = decl.params;
  for (const model::ExpertBiasDecl& bias : decl.expert_biases) {
    params.push_back(bias.AsParameter());
  }
  for (const model::ParamDecl& param : params) {
    const auto slices = names_(param);
    if (!slices.ok()) {
      problems.Add("not in the checkpoint's model",
                   std::string(slices.status().message()));
      continue;
    }
    for (const TensorSlice& slice : *slices) {
      const bool is_first = known.insert(slice.name).second;
      if (is_first) CheckTensor(slice, Find(slice.name), problems);
    }
  }
  for (const auto& [name, tensor] : tensors_) {
    if (known.count(name) == 0) problems.Add("left over", name);
  }
  if (problems.IsEmpty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      folder_, ": not a checkpoint of the model: ", problems.Text()));
}

absl::Status CheckpointTensors::Read(const model::ParamDecl& param,
                                     int64_t begin,
                                     absl::Span<float> out) const {
  ASSIGN_OR_RETURN(const std::vector<TensorSlice> slices, names_(param),
                   _ << folder_);
  const int64_t end = begin + static_cast<int64_t>(out.size());
  int64_t slice_begin = 0;
  for (const TensorSlice& slice : slices) {
    const int64_t slice_end = slice_begin + slice.elements;
    const int64_t from = std::max(begin, slice_begin);
    const int64_t to = std::min(end, slice_end);
    if (from < to) {
      const SafetensorsView* found = Find(slice.name);
      Problems problems;
      CheckTensor(slice, found, problems);
      if (!problems.IsEmpty()) {
        return absl::InvalidArgumentError(
            absl::StrCat(folder_, ": ", problems.Text()));
      }
      const int64_t first = slice.begin + from - slice_begin;
      const absl::Span<float> values = out.subspan(from - begin, to - from);
      CopyAsF32(*found, first, values);
      RETURN_IF_ERROR(Annotate(CheckFinite(values, *found, first), folder_));
    }
    slice_begin = slice_end;
  }
  if (begin < 0 || end > slice_begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("elements [", begin, ", ", end, ") of parameter \"",
                     param.name, "\" are not inside its ", slice_begin));
  }
  return absl::OkStatus();
}

}  // namespace weft::checkpoint
