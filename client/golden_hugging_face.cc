#include "client/golden_hugging_face.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file/read_file.h"
#include "base/status_macros.h"
#include "checkpoint/format/hugging_face_config.h"
#include "checkpoint/format/hugging_face_names.h"
#include "checkpoint/format/json_fields.h"
#include "checkpoint/format/safetensors_file.h"
#include "client/golden_files.h"
#include "client/json_file.h"

namespace weft::client {
namespace {

using checkpoint::SafetensorsFile;
using checkpoint::SafetensorsType;
using checkpoint::SafetensorsView;
using Json = nlohmann::json;

// Requires: the batches of `golden` are read.
absl::Status ReadExpected(const Json& json, GoldenCase& golden) {
  checkpoint::FieldReader fields(json);
  const auto numbers = [&](const char* name) {
    std::vector<double> read;
    const Json* list = fields.Take(name);
    if (list != nullptr && list->is_array()) {
      for (const Json& number : *list) {
        if (number.is_number()) read.push_back(number.get<double>());
      }
    }
    if (read.size() != golden.steps.size() || read.size() != list->size()) {
      fields.Refuse(name, absl::StrCat("must be a list of ",
                                       golden.steps.size(), " numbers"));
      read.resize(golden.steps.size());
    }
    return read;
  };
  const std::vector<double> losses = numbers("losses");
  const std::vector<double> grad_norms = numbers("grad_norms");
  for (size_t i = 0; i < golden.steps.size(); ++i) {
    golden.steps[i].loss = losses[i];
    golden.steps[i].grad_norm = grad_norms[i];
  }
  const int64_t length = golden.job.data().sequence_length() + 1;
  fields.Integer({"batch", golden.batch, golden.batch, golden.batch});
  fields.Integer({"seq", length, length, length});
  const Json* still = fields.Take("params_without_grad");
  if (still != nullptr && *still != Json::array()) {
    fields.Refuse("params_without_grad", "must be [], as all are trained");
  }
  fields.Take("seed");
  RETURN_IF_ERROR(ReadOptimizer(fields, golden.job.mutable_optimizer()));
  fields.RefuseTheRest("is not known");
  return fields.Refusals();
}

// Those of the last position, which predicts nothing, are left out.
absl::Status ReadLogits(const SafetensorsFile& file, GoldenCase& golden) {
  const SafetensorsView* view = file.Find("logits_step0");
  const int64_t predicting = golden.job.data().sequence_length();
  const int64_t vocab = golden.job.model().vocab_size();
  const std::vector<int64_t> shape = {golden.batch, predicting + 1, vocab};
  if (view == nullptr || view->type != SafetensorsType::kF32 ||
      view->shape != shape) {
    return absl::DataLossError(absl::StrCat(file.path(),
                                            ": logits_step0 must be F32 [",
                                            absl::StrJoin(shape, ", "), "]"));
  }
  const std::vector<float> all = FloatsOf(*view);
  for (int64_t i = 0; i < golden.batch; ++i) {
    const auto begin = all.begin() + i * (predicting + 1) * vocab;
    golden.logits.insert(golden.logits.end(), begin,
                         begin + predicting * vocab);
  }
  return absl::OkStatus();
}

absl::Status ReadBatches(GoldenCase& golden) {
  ASSIGN_OR_RETURN(const auto file,
                   SafetensorsFile::Open(golden.folder + "/batch.safetensors"));
  const SafetensorsView* ids = file.Find("input_ids");
  if (ids == nullptr || ids->type != SafetensorsType::kI64 ||
      ids->shape.size() != 3 || ids->shape[0] < 1 || ids->shape[1] < 1 ||
      ids->shape[2] < 2) {
    return absl::DataLossError(absl::StrCat(
        file.path(),
        ": input_ids must be I64 [steps, batch, sequence] with sequences of "
        "two and more tokens"));
  }
  for (const SafetensorsView& tensor : file.tensors()) {
    if (tensor.name == "input_ids" || tensor.name == "logits_step0") continue;
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(), ": ", tensor.name, " is nothing that a job reads"));
  }
  golden.steps.resize(ids->shape[0]);
  golden.batch = ids->shape[1];
  golden.job.mutable_data()->set_sequence_length(
      static_cast<int32_t>(ids->shape[2] - 1));
  ASSIGN_OR_RETURN(golden.tokens, TokensOf(file, *ids));
  return ReadLogits(file, golden);
}

}  // namespace

absl::Status ReadHuggingFaceCase(GoldenCase& golden) {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFile(golden.folder + "/config.json", kMaxConfigBytes));
  ASSIGN_OR_RETURN(const checkpoint::HfConfig config,
                   checkpoint::ParseHfConfig(text), _ << "config.json");
  *golden.job.mutable_model() = config.model;
  RETURN_IF_ERROR(CheckModelIsLegal(golden.job));
  golden.job.mutable_init()->set_hugging_face(golden.folder);
  golden.names = [config](const model::ParamDecl& param) {
    return checkpoint::HfTensorsOf(config.family, config.model, param);
  };
  golden.bounds.norms = 3e-6;
  golden.bounds.change = 2e-4;
  RETURN_IF_ERROR(ReadBatches(golden));
  const std::string path = golden.folder + "/expected.json";
  ASSIGN_OR_RETURN(const Json expected, ReadJsonFile(path));
  return Annotate(ReadExpected(expected, golden), path);
}

}  // namespace weft::client
