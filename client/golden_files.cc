#include "client/golden_files.h"

#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "schedule/rules/validate.h"

namespace weft::client {

using Json = nlohmann::json;

void RequireText(checkpoint::FieldReader& fields, const char* name,
                 const std::vector<std::string>& texts) {
  const Json* value = fields.Take(name);
  if (value == nullptr) return;
  for (const std::string& text : texts) {
    if (*value == text) return;
  }
  fields.Refuse(
      name, absl::StrCat("must be \"", absl::StrJoin(texts, "\" or \""), "\""));
}

absl::Status ReadOptimizer(checkpoint::FieldReader& expected,
                           v1::OptimizerConfig* optimizer) {
  const Json* json = expected.Take("optimizer");
  if (json == nullptr || !json->is_object()) {
    expected.Refuse("optimizer", "must be an object");
    return expected.Refusals();
  }
  checkpoint::FieldReader fields(*json, "optimizer.");
  fields.Require({"name", "lr", "beta1", "beta2", "eps", "weight_decay",
                  "clip_grad_norm"});
  RequireText(fields, "name", {"AdamW"});
  RequireText(fields, "weight_decay_on",
              {"tensors with 2 or more dimensions",
               "tensors with 2 or more dimensions in memory"});
  RequireText(fields, "clip_factor",
              {"clip / (norm + 1e-6), only when below 1"});
  optimizer->set_learning_rate(fields.Number("lr", 0));
  optimizer->set_beta1(fields.Number("beta1", 0));
  optimizer->set_beta2(fields.Number("beta2", 0));
  optimizer->set_epsilon(fields.Number("eps", 0));
  optimizer->set_weight_decay(fields.Number("weight_decay", 0));
  optimizer->set_clip_norm(fields.Number("clip_grad_norm", 0));
  fields.RefuseTheRest("is not known");
  return fields.Refusals();
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

absl::Status CheckModelIsLegal(const v1::TrainingJob& job) {
  std::vector<schedule::Violation> of_model;
  for (schedule::Violation& violation : schedule::Validate(job).violations) {
    const absl::string_view field = violation.field;
    if (field == "model" || absl::StartsWith(field, "model.")) {
      of_model.push_back(std::move(violation));
    }
  }
  return of_model.empty() ? absl::OkStatus() : schedule::ToStatus(of_model);
}

schedule::Plan DeclareOneSequence(v1::TrainingJob job) {
  job.mutable_parallel()->set_world(1);
  job.mutable_batch()->set_global_batch(1);
  job.mutable_batch()->set_microbatch(1);
  return schedule::Declare(job);
}

}  // namespace weft::client
