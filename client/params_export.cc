#include "client/params_export.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/file/atomic_file.h"
#include "base/file/read_file.h"
#include "base/status_macros.h"
#include "checkpoint/format/hugging_face_config.h"
#include "checkpoint/format/hugging_face_names.h"
#include "checkpoint/format/safetensors_writer.h"
#include "client/golden_files.h"
#include "client/run_results.h"

namespace weft::client {
namespace {

using checkpoint::TensorSlice;

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Tensor>;

// Adds the tensors, or parts of them, that hold a parameter.
absl::Status AddParam(const std::vector<TensorSlice>& slices,
                      const std::vector<float>& param, Tensors& tensors) {
  int64_t begin = 0;
  for (const TensorSlice& slice : slices) {
    Tensor& tensor = tensors[slice.name];
    if (tensor.shape.empty()) {
      tensor.shape = slice.shape;
      tensor.values.resize(
          checkpoint::WholeTensor(slice.name, slice.shape).elements);
    }
    if (begin + slice.elements > static_cast<int64_t>(param.size())) break;
    std::copy_n(param.begin() + begin, slice.elements,
                tensor.values.begin() + slice.begin);
    begin += slice.elements;
  }
  if (begin == static_cast<int64_t>(param.size())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("has ", param.size(), " elements, not those of \"",
                   slices.front().name, "\" that config.json makes"));
}

absl::StatusOr<Tensors> TensorsOf(const ParamFolder& params,
                                  const checkpoint::HfConfig& config) {
  v1::TrainingJob job;
  *job.mutable_model() = config.model;
  job.mutable_data()->set_sequence_length(1);
  RETURN_IF_ERROR(CheckModelIsLegal(job));
  const model::ModelDecl model = DeclareOneSequence(job).model;
  std::vector<model::ParamDecl> declared = model.params;
  for (const model::ExpertBiasDecl& bias : model.expert_biases) {
    declared.push_back(bias.AsParameter());
  }
  Tensors tensors;
  for (const model::ParamDecl& param : declared) {
    ASSIGN_OR_RETURN(const std::vector<TensorSlice> slices,
                     HfTensorsOf(config.family, config.model, param));
    if (params.params().count(param.name) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "config.json is of another model: the job has no parameter \"",
          param.name, "\""));
    }
    ASSIGN_OR_RETURN(const std::vector<float> values,
                     WholeParam(params, param.name));
    RETURN_IF_ERROR(Annotate(AddParam(slices, values, tensors),
                             absl::StrCat("parameter \"", param.name, "\"")));
  }
  if (declared.size() == params.params().size()) return tensors;
  return absl::InvalidArgumentError(absl::StrCat(
      "config.json is of another model: the job has ", params.params().size(),
      " parameters, the model ", declared.size()));
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                   AtomicFile::Create(path));
  RETURN_IF_ERROR(file->Append(text));
  return file->Commit();
}

}  // namespace

absl::StatusOr<Exported> ExportHuggingFace(const ParamFolder& params,
                                           const std::string& config,
                                           const std::string& to) {
  const std::string path = config + "/config.json";
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxConfigBytes));
  ASSIGN_OR_RETURN(const checkpoint::HfConfig parsed,
                   checkpoint::ParseHfConfig(text), _ << path);
  ASSIGN_OR_RETURN(const Tensors tensors, TensorsOf(params, parsed), _ << path);
  checkpoint::SafetensorsWriter writer;
  writer.SetMetadata("format", "pt");
  Exported exported;
  for (const auto& [name, tensor] : tensors) {
    RETURN_IF_ERROR(
        writer.Add(name, DType::kF32, tensor.shape, tensor.values.data()));
    ++exported.tensors;
    exported.elements += static_cast<int64_t>(tensor.values.size());
  }
  std::error_code error;
  std::filesystem::create_directories(to, error);
  if (error) return absl::ErrnoToStatus(error.value(), to);
  RETURN_IF_ERROR(writer.Write(to + "/model.safetensors"));
  RETURN_IF_ERROR(WriteText(to + "/config.json", text));
  return exported;
}

}  // namespace weft::client
