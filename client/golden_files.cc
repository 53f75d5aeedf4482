#include "client/golden_files.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::client {

using Json = nlohmann::json;

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::StatusOr<Json> ReadJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::DataLossError(absl::StrCat(path, ": is no JSON object"));
  }
  return json;
}

absl::Status ReadOptimizer(const Json& expected, const std::string& path,
                           v1::OptimizerConfig* optimizer) {
  const auto it = expected.find("optimizer");
  if (it == expected.end() || !it->is_object()) {
    return absl::DataLossError(absl::StrCat(path, ": optimizer is missing"));
  }
  const Json& json = *it;
  if (json.value("name", Json()) != "AdamW") {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": optimizer.name=", json.value("name", Json()).dump(),
        " is not supported; must be \"AdamW\""));
  }
  for (const char* key :
       {"lr", "beta1", "beta2", "eps", "weight_decay", "clip_grad_norm"}) {
    if (!json.contains(key) || !json[key].is_number()) {
      return absl::DataLossError(
          absl::StrCat(path, ": optimizer.", key, " must be a number"));
    }
  }
  optimizer->set_learning_rate(json["lr"].get<double>());
  optimizer->set_beta1(json["beta1"].get<double>());
  optimizer->set_beta2(json["beta2"].get<double>());
  optimizer->set_epsilon(json["eps"].get<double>());
  optimizer->set_weight_decay(json["weight_decay"].get<double>());
  optimizer->set_clip_norm(json["clip_grad_norm"].get<double>());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> TokensOf(
    const checkpoint::SafetensorsFile& file,
    const checkpoint::SafetensorsView& view) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < view.elements(); ++i) {
    int64_t token = 0;
    std::memcpy(&token, view.bytes.data() + i * sizeof(token), sizeof(token));
    if (token < 0 || token > std::numeric_limits<int32_t>::max()) {
      return absl::DataLossError(
          absl::StrCat(file.path(), ": ", view.name, " has token ", token));
    }
    tokens.push_back(static_cast<int32_t>(token));
  }
  return tokens;
}

std::vector<float> FloatsOf(const checkpoint::SafetensorsView& view) {
  std::vector<float> values(view.elements());
  std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
  return values;
}

schedule::Plan DeclareOneSequence(v1::TrainingJob job) {
  job.mutable_parallel()->set_world(1);
  job.mutable_batch()->set_global_batch(1);
  job.mutable_batch()->set_microbatch(1);
  return schedule::Declare(job);
}

}  // namespace weft::client
