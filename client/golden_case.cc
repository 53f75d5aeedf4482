#include "client/golden_case.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "checkpoint/format/safetensors_file.h"
#include "data/format/indexed_dataset_writer.h"
#include "nlohmann/json.hpp"

namespace weft::client {
namespace {

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

absl::Status ReadExpected(GoldenCase& golden) {
  const std::string path = golden.folder + "/expected.json";
  ASSIGN_OR_RETURN(const Json expected, ReadJson(path));
  ASSIGN_OR_RETURN(golden.losses, Numbers(expected, "losses", path));
  ASSIGN_OR_RETURN(golden.grad_norms, Numbers(expected, "grad_norms", path));
  if (golden.losses.size() != golden.grad_norms.size()) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", golden.losses.size(), " losses but ",
                     golden.grad_norms.size(), " grad_norms"));
  }
  return ReadOptimizer(expected, path, &golden.optimizer);
}

absl::Status ReadBatches(GoldenCase& golden) {
  ASSIGN_OR_RETURN(const auto file, checkpoint::SafetensorsFile::Open(
                                        golden.folder + "/batch.safetensors"));
  const checkpoint::SafetensorsView* ids = file.Find("input_ids");
  if (ids == nullptr || ids->type != checkpoint::SafetensorsType::kI64 ||
      ids->shape.size() != 3 || ids->shape[0] != golden.steps() ||
      ids->shape[1] < 1 || ids->shape[2] < 2) {
    return absl::DataLossError(absl::StrCat(
        file.path(), ": input_ids must be I64 [", golden.steps(),
        ", batch, sequence] with sequences of two and more tokens"));
  }
  golden.batch = ids->shape[1];
  golden.sequence = ids->shape[2];
  for (int64_t i = 0; i < ids->elements(); ++i) {
    int64_t token = 0;
    std::memcpy(&token, ids->bytes.data() + i * sizeof(token), sizeof(token));
    if (token < 0 || token > std::numeric_limits<int32_t>::max()) {
      return absl::DataLossError(
          absl::StrCat(file.path(), ": input_ids has token ", token));
    }
    golden.tokens.push_back(static_cast<int32_t>(token));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GoldenCase> ReadGoldenCase(const std::string& folder) {
  GoldenCase golden;
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(folder, error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("cannot open folder ", folder, ": ", error.message()));
  }
  golden.folder = path.string();
  golden.name = path.filename().string();
  ASSIGN_OR_RETURN(const std::string config,
                   ReadText(golden.folder + "/config.json"));
  ASSIGN_OR_RETURN(golden.config, checkpoint::ParseHfConfig(config),
                   _ << golden.folder);
  RETURN_IF_ERROR(ReadExpected(golden));
  RETURN_IF_ERROR(ReadBatches(golden));
  return golden;
}

absl::StatusOr<v1::TrainingJob> MakeGoldenJob(const GoldenCase& golden,
                                              const GoldenOptions& options,
                                              const std::string& prefix) {
  const int64_t share = golden.batch / options.world;
  const int64_t microbatch =
      options.microbatch > 0 ? options.microbatch : share;
  if (share * options.world != golden.batch || microbatch < 1 ||
      share % microbatch != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(golden.name, ": a batch of ", golden.batch,
                     " sequences cannot be divided over world=", options.world,
                     " in microbatches of ", microbatch));
  }
  v1::TrainingJob job;
  job.set_name("golden");
  *job.mutable_model() = golden.config.model;
  job.mutable_init()->set_hugging_face(golden.folder);
  job.mutable_data()->set_prefix(prefix);
  job.mutable_data()->set_sequence_length(
      static_cast<int32_t>(golden.sequence - 1));
  job.mutable_data()->set_sample_kind(v1::SAMPLE_KIND_SEQUENCE);
  job.mutable_data()->set_sample_order(v1::SAMPLE_ORDER_IN_FILE);
  job.mutable_parallel()->set_world(static_cast<int32_t>(options.world));
  job.mutable_parallel()->set_ep(static_cast<int32_t>(options.ep));
  job.mutable_batch()->set_global_batch(static_cast<int32_t>(golden.batch));
  job.mutable_batch()->set_microbatch(static_cast<int32_t>(microbatch));
  job.mutable_schedule()->set_order(options.order);
  job.mutable_schedule()->set_delay_wgrad(options.delay_wgrad);
  job.mutable_fsdp()->set_strategy(options.strategy);
  *job.mutable_optimizer() = golden.optimizer;
  job.set_steps(golden.steps());
  job.mutable_output()->set_final_parameters(true);
  job.mutable_output()->set_gradients_step(1);
  return job;
}

absl::Status WriteGoldenData(const GoldenCase& golden,
                             const std::string& prefix) {
  ASSIGN_OR_RETURN(const std::unique_ptr<data::IndexedDatasetWriter> writer,
                   data::IndexedDatasetWriter::Create(
                       prefix, golden.config.model.vocab_size()));
  const absl::Span<const int32_t> tokens = golden.tokens;
  for (size_t at = 0; at < tokens.size(); at += golden.sequence) {
    RETURN_IF_ERROR(writer->AddSequence(tokens.subspan(at, golden.sequence)));
    writer->EndDocument();
  }
  return writer->Finish();
}

}  // namespace weft::client
