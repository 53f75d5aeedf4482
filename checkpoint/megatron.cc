#include "checkpoint/megatron.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/file/mapped_file.h"
#include "base/status_macros.h"
#include "checkpoint/format/megatron_config.h"
#include "checkpoint/format/megatron_names.h"

namespace weft::checkpoint {

absl::StatusOr<std::unique_ptr<CheckpointTensors>> OpenMegatronCheckpoint(
    const std::string& folder, const model::Shape& shape) {
  ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(absl::StrCat(
                                             folder, "/model.safetensors")));
  std::vector<SafetensorsFile> files;
  files.push_back(std::move(file));
  return std::make_unique<CheckpointTensors>(
      folder, std::move(files), [shape](const model::ParamDecl& param) {
        return MegatronTensorsOf(shape, param);
      });
}

absl::StatusOr<std::optional<v1::ModelConfig>> ReadMegatronModel(
    const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/config.json");
  const auto file = MappedFile::Open(path);
  if (absl::IsNotFound(file.status())) return std::nullopt;
  RETURN_IF_ERROR(file.status());
  ASSIGN_OR_RETURN(MegatronConfig config, ParseMegatronConfig(file->bytes()),
                   _ << path);
  return std::move(config.model);
}

}  // namespace weft::checkpoint
