#include "checkpoint/megatron.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
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

}  // namespace weft::checkpoint
