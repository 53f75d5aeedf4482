#include "client/golden_case.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "client/golden_files.h"
#include "client/golden_hugging_face.h"
#include "client/golden_megatron.h"
#include "client/golden_taps.h"
#include "client/json_file.h"
#include "client/utf8.h"
#include "data/format/indexed_dataset_writer.h"

namespace weft::client {
namespace {

// Sequences of each microbatch on one rank.
absl::StatusOr<std::vector<int64_t>> MicrobatchesOf(
    const GoldenCase& golden, const GoldenOptions& options) {
  if (golden.job.model().moe().has_capacity() && options.world > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        golden.name, ": world=", options.world,
        " must be 1: experts have a capacity, which is of the tokens of a "
        "rank"));
  }
  if (!golden.microbatches.empty()) {
    if (options.microbatch > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(golden.name, ": microbatch=", options.microbatch,
                       " must be 0: the case has its own ",
                       golden.microbatches.size(), " microbatches"));
    }
    std::vector<int64_t> shares;
    for (int64_t sequences : golden.microbatches) {
      if (sequences % options.world != 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            golden.name, ": a microbatch of ", sequences,
            " sequences cannot be divided over world=", options.world));
      }
      shares.push_back(sequences / options.world);
    }
    return shares;
  }
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
  return std::vector<int64_t>(share / microbatch, microbatch);
}

void SetMicrobatches(const std::vector<int64_t>& sequences,
                     v1::BatchConfig& batch) {
  const bool are_equal =
      std::all_of(sequences.begin(), sequences.end(),
                  [&](int64_t other) { return other == sequences[0]; });
  if (are_equal) {
    batch.set_microbatch(static_cast<int32_t>(sequences[0]));
    return;
  }
  for (int64_t s : sequences) {
    batch.add_microbatches(static_cast<int32_t>(s));
  }
}

void TapRouting(const GoldenCase& golden, v1::OutputConfig& output) {
  for (int64_t layer : golden.RoutedLayers()) {
    output.add_taps(RoutingOf(golden, layer).name);
  }
}

void SetTaps(const GoldenCase& golden, v1::OutputConfig& output) {
  if (!golden.logits.empty()) output.add_taps(LogitsOf(golden).name);
  if (!golden.routing.empty()) TapRouting(golden, output);
  if (output.taps_size() > 0) output.set_tap_step(1);
}

std::string MaskPrefix(const std::string& prefix) {
  return absl::StrCat(prefix, ".loss-mask");
}

std::string PaddingPrefix(const std::string& prefix) {
  return absl::StrCat(prefix, ".padding-mask");
}

absl::Status WriteSequences(const std::string& prefix, int64_t values,
                            absl::Span<const int32_t> numbers, int64_t length) {
  ASSIGN_OR_RETURN(const std::unique_ptr<data::IndexedDatasetWriter> writer,
                   data::IndexedDatasetWriter::Create(prefix, values));
  for (size_t at = 0; at < numbers.size(); at += length) {
    RETURN_IF_ERROR(writer->AddSequence(numbers.subspan(at, length)));
    writer->EndDocument();
  }
  return writer->Finish();
}

}  // namespace

absl::StatusOr<GoldenCase> ReadGoldenCase(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(folder, error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("cannot open folder ", folder, ": ", error.message()));
  }
  GoldenCase golden;
  golden.folder = path.string();
  golden.name = path.filename().string();
  if (!IsUtf8(golden.folder)) {
    return absl::InvalidArgumentError(
        absl::StrCat("folder ", golden.folder,
                     ": its name is not UTF-8, so no job can name it"));
  }
  v1::TrainingJob& job = golden.job;
  job.set_name("golden");
  job.mutable_data()->set_sample_kind(v1::SAMPLE_KIND_SEQUENCE);
  job.mutable_data()->set_sample_order(v1::SAMPLE_ORDER_IN_FILE);
  const std::string config_path = golden.folder + "/config.json";
  ASSIGN_OR_RETURN(const nlohmann::json config, ReadJsonFile(config_path));
  if (config.contains("model_type")) {
    RETURN_IF_ERROR(ReadHuggingFaceCase(golden));
  } else if (config.contains("model_class")) {
    RETURN_IF_ERROR(ReadMegatronCase(golden));
  } else {
    return absl::DataLossError(
        absl::StrCat(config_path,
                     ": has neither model_type, as Hugging Face "
                     "writes it, nor model_class"));
  }
  job.set_steps(static_cast<int64_t>(golden.steps.size()));
  const model::ModelDecl model = DeclareOneSequence(job).model;
  golden.params = model.params;
  for (const model::ExpertBiasDecl& bias : model.expert_biases) {
    golden.biases.push_back(bias.AsParameter());
  }
  return golden;
}

std::vector<int64_t> GoldenCase::RoutedLayers() const {
  const model::ModelDecl model = DeclareOneSequence(job).model;
  std::vector<int64_t> layers;
  for (size_t layer = 1; layer < model.layers.size(); ++layer) {
    if (model.layers[layer].moe) layers.push_back(layer - 1);
  }
  return layers;
}

int64_t GoldenCase::TokensOfExpert(int64_t chosen, int64_t tokens) const {
  if (!job.model().moe().has_capacity()) return chosen;
  model::Shape shape = DeclareOneSequence(job).shape;
  shape.tokens = tokens;
  return shape.pad_to_capacity ? shape.capacity()
                               : std::min(chosen, shape.capacity());
}

absl::StatusOr<v1::TrainingJob> MakeGoldenJob(const GoldenCase& golden,
                                              const GoldenOptions& options,
                                              const std::string& prefix) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> microbatches,
                   MicrobatchesOf(golden, options));
  v1::TrainingJob job = golden.job;
  job.mutable_data()->set_prefix(prefix);
  if (!golden.loss_mask.empty()) {
    job.mutable_data()->set_loss_mask_prefix(MaskPrefix(prefix));
  }
  if (!golden.padding_mask.empty()) {
    job.mutable_data()->set_padding_mask_prefix(PaddingPrefix(prefix));
  }
  job.mutable_parallel()->set_world(static_cast<int32_t>(options.world));
  job.mutable_parallel()->set_ep(static_cast<int32_t>(options.ep));
  job.mutable_batch()->set_global_batch(static_cast<int32_t>(golden.batch));
  SetMicrobatches(microbatches, *job.mutable_batch());
  job.mutable_schedule()->set_order(options.order);
  job.mutable_schedule()->set_delay_wgrad(options.delay_wgrad);
  job.mutable_fsdp()->set_strategy(options.strategy);
  job.mutable_output()->set_final_parameters(true);
  job.mutable_output()->set_gradients_step(1);
  SetTaps(golden, *job.mutable_output());
  return job;
}

v1::TrainingJob MakeRoutingJob(const GoldenCase& golden, v1::TrainingJob job,
                               int64_t step) {
  job.set_steps(step);
  job.clear_output();
  TapRouting(golden, *job.mutable_output());
  job.mutable_output()->set_tap_step(step);
  return job;
}

absl::Status WriteGoldenData(const GoldenCase& golden,
                             const std::string& prefix) {
  const int64_t length = golden.job.data().sequence_length() + 1;
  RETURN_IF_ERROR(WriteSequences(prefix, golden.job.model().vocab_size(),
                                 golden.tokens, length));
  if (!golden.loss_mask.empty()) {
    RETURN_IF_ERROR(WriteSequences(MaskPrefix(prefix), /*values=*/2,
                                   golden.loss_mask, length));
  }
  if (golden.padding_mask.empty()) return absl::OkStatus();
  return WriteSequences(PaddingPrefix(prefix), /*values=*/2,
                        golden.padding_mask, length);
}

}  // namespace weft::client
