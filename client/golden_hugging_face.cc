#include "client/golden_hugging_face.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "checkpoint/format/hugging_face_config.h"
#include "checkpoint/format/hugging_face_names.h"
#include "checkpoint/format/safetensors_file.h"
#include "client/golden_files.h"

namespace weft::client {
namespace {

using checkpoint::SafetensorsFile;
using checkpoint::SafetensorsType;
using checkpoint::SafetensorsView;
using Json = nlohmann::json;

absl::StatusOr<std::vector<double>> Numbers(const Json& json, const char* key,
                                            const std::string& path) {
  const auto it = json.find(key);
  std::vector<double> numbers;
  if (it != json.end() && it->is_array()) {
    for (const Json& number : *it) {
      if (number.is_number()) numbers.push_back(number.get<double>());
    }
  }
  if (numbers.empty() || numbers.size() != it->size()) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", key, " must be a list of numbers"));
  }
  return numbers;
}

absl::Status ReadExpected(GoldenCase& golden) {
  const std::string path = golden.folder + "/expected.json";
  ASSIGN_OR_RETURN(const Json expected, ReadJson(path));
  ASSIGN_OR_RETURN(const auto losses, Numbers(expected, "losses", path));
  ASSIGN_OR_RETURN(const auto grad_norms,
                   Numbers(expected, "grad_norms", path));
  if (losses.size() != grad_norms.size()) {
    return absl::DataLossError(absl::StrCat(path, ": ", losses.size(),
                                            " losses but ", grad_norms.size(),
                                            " grad_norms"));
  }
  for (size_t i = 0; i < losses.size(); ++i) {
    GoldenStep& step = golden.steps.emplace_back();
    step.loss = losses[i];
    step.grad_norm = grad_norms[i];
  }
  return ReadOptimizer(expected, path, golden.job.mutable_optimizer());
}

// Those of the last position, which predicts nothing, are left out.
absl::Status ReadLogits(const SafetensorsFile& file, GoldenCase& golden) {
  const SafetensorsView* view = file.Find("logits_step0");
  if (view == nullptr) return absl::OkStatus();
  const int64_t predicting = golden.job.data().sequence_length();
  const int64_t vocab = golden.job.model().vocab_size();
  const std::vector<int64_t> shape = {golden.batch, predicting + 1, vocab};
  if (view->type != SafetensorsType::kF32 || view->shape != shape) {
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
  const int64_t steps = golden.steps.size();
  const SafetensorsView* ids = file.Find("input_ids");
  if (ids == nullptr || ids->type != SafetensorsType::kI64 ||
      ids->shape.size() != 3 || ids->shape[0] != steps || ids->shape[1] < 1 ||
      ids->shape[2] < 2) {
    return absl::DataLossError(absl::StrCat(
        file.path(), ": input_ids must be I64 [", steps,
        ", batch, sequence] with sequences of two and more tokens"));
  }
  golden.batch = ids->shape[1];
  golden.job.mutable_data()->set_sequence_length(
      static_cast<int32_t>(ids->shape[2] - 1));
  ASSIGN_OR_RETURN(golden.tokens, TokensOf(file, *ids));
  return ReadLogits(file, golden);
}

}  // namespace

absl::Status ReadHuggingFaceCase(GoldenCase& golden) {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadText(golden.folder + "/config.json"));
  ASSIGN_OR_RETURN(const checkpoint::HfConfig config,
                   checkpoint::ParseHfConfig(text), _ << "config.json");
  *golden.job.mutable_model() = config.model;
  golden.job.mutable_init()->set_hugging_face(golden.folder);
  golden.names = [config](const model::ParamDecl& param) {
    return checkpoint::HfTensorsOf(config.family, config.model, param);
  };
  golden.bounds.norms = 3e-6;
  golden.bounds.change = 2e-4;
  RETURN_IF_ERROR(ReadExpected(golden));
  return ReadBatches(golden);
}

}  // namespace weft::client
