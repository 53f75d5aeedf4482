#include "client/job_inputs.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "data/format/indexed_dataset.h"
#include "data/format/sample_split.h"

namespace weft::client {
namespace {

absl::StatusOr<data::SampleSplit> SplitOf(const v1::DataConfig& config) {
  ASSIGN_OR_RETURN(const data::IndexedDataset dataset,
                   data::IndexedDataset::Open(config.prefix()));
  if (config.sample_kind() == v1::SAMPLE_KIND_SEQUENCE) {
    return data::SplitSequences(dataset.index(), config.sequence_length(),
                                config.validation_fraction());
  }
  return data::SplitWindows(dataset.num_tokens(), config.sequence_length(),
                            config.validation_fraction());
}

absl::Status CheckData(const v1::TrainingJob& job) {
  ASSIGN_OR_RETURN(const data::SampleSplit split, SplitOf(job.data()));
  const int64_t batch = std::max(1, job.batch().global_batch());
  if (job.eval().batches() <= split.validation / batch) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "holds out ", split.validation, " samples with ",
      "data.validation_fraction=", job.data().validation_fraction(),
      ", too few for eval.batches=", job.eval().batches(),
      " of batch.global_batch=", batch));
}

absl::Status CheckFolder(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return absl::OkStatus();
  return absl::NotFoundError("there is no such folder");
}

}  // namespace

std::vector<std::string> InputWarnings(const v1::TrainingJob& job) {
  std::vector<std::string> warnings;
  const auto check = [&](const char* field, const std::string& path,
                         const absl::Status& status) {
    if (path.empty() || status.ok()) return;
    warnings.push_back(absl::StrCat(field, "=", path,
                                    ", as seen from here: ", status.message()));
  };
  const std::string& mask = job.data().loss_mask_prefix();
  check("data.prefix", job.data().prefix(), CheckData(job));
  check("data.loss_mask_prefix", mask,
        data::IndexedDataset::Open(mask).status());
  const std::string& padding = job.data().padding_mask_prefix();
  check("data.padding_mask_prefix", padding,
        data::IndexedDataset::Open(padding).status());
  check("init.hugging_face", job.init().hugging_face(),
        CheckFolder(job.init().hugging_face()));
  check("init.megatron", job.init().megatron(),
        CheckFolder(job.init().megatron()));
  check("replay_routing", job.replay_routing(),
        CheckFolder(job.replay_routing()));
  return warnings;
}

}  // namespace weft::client
