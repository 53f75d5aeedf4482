#include "checkpoint/hugging_face.h"

#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/file/mapped_file.h"
#include "base/status_macros.h"
#include "checkpoint/format/hugging_face_index.h"
#include "checkpoint/format/hugging_face_names.h"

namespace weft::checkpoint {
namespace {

constexpr char kConfig[] = "config.json";
constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kHead[] = "lm_head.weight";

absl::StatusOr<HfConfig> OpenConfig(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kConfig);
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(HfConfig config, ParseHfConfig(file.bytes()), _ << path);
  return config;
}

// Checks that the tensors of a shard are those that the index expects in it.
absl::Status CheckShard(const SafetensorsFile& shard,
                        const std::set<std::string>& expected) {
  for (const std::string& name : expected) {
    if (shard.Find(name) != nullptr) continue;
    return absl::DataLossError(absl::StrCat(shard.path(), ": tensor \"", name,
                                            "\" of the index is not there"));
  }
  for (const SafetensorsView& tensor : shard.tensors()) {
    if (expected.count(tensor.name) != 0) continue;
    return absl::DataLossError(
        absl::StrCat(shard.path(), ": tensor \"", tensor.name,
                     "\" is not in the index, or in another file"));
  }
  return absl::OkStatus();
}

// The shards that the index, a text from `path`, names.
absl::StatusOr<std::vector<SafetensorsFile>> OpenShards(
    const std::string& folder, const std::string& path,
    absl::string_view text) {
  ASSIGN_OR_RETURN(const HfIndex index, ParseHfIndex(text), _ << path);
  std::map<std::string, std::set<std::string>> tensors_by_file;
  for (const auto& [tensor, name] : index) {
    tensors_by_file[name].insert(tensor);
  }
  std::vector<SafetensorsFile> shards;
  for (const auto& [name, tensors] : tensors_by_file) {
    ASSIGN_OR_RETURN(SafetensorsFile shard,
                     SafetensorsFile::Open(absl::StrCat(folder, "/", name)),
                     _ << path);
    RETURN_IF_ERROR(CheckShard(shard, tensors));
    shards.push_back(std::move(shard));
  }
  return shards;
}

absl::StatusOr<std::vector<SafetensorsFile>> OpenFiles(
    const std::string& folder) {
  auto single = SafetensorsFile::Open(absl::StrCat(folder, "/", kSingle));
  if (single.ok()) {
    std::vector<SafetensorsFile> files;
    files.push_back(*std::move(single));
    return files;
  }
  if (!absl::IsNotFound(single.status())) return single.status();
  const std::string path = absl::StrCat(folder, "/", kIndex);
  const auto index = MappedFile::Open(path);
  if (absl::IsNotFound(index.status())) {
    return absl::NotFoundError(
        absl::StrCat(folder, ": holds neither ", kSingle, " nor ", kIndex));
  }
  RETURN_IF_ERROR(index.status());
  return OpenShards(folder, path, index->bytes());
}

}  // namespace

absl::StatusOr<std::unique_ptr<HuggingFaceCheckpoint>>
HuggingFaceCheckpoint::Open(const std::string& folder) {
  ASSIGN_OR_RETURN(HfConfig config, OpenConfig(folder));
  ASSIGN_OR_RETURN(std::vector<SafetensorsFile> files, OpenFiles(folder));
  return std::unique_ptr<HuggingFaceCheckpoint>(
      new HuggingFaceCheckpoint(folder, std::move(config), std::move(files)));
}

HuggingFaceCheckpoint::HuggingFaceCheckpoint(const std::string& folder,
                                             HfConfig config,
                                             std::vector<SafetensorsFile> files)
    : config_(std::move(config)),
      tensors_(folder, std::move(files), [this](const model::ParamDecl& param) {
        return HfTensorsOf(config_.family, config_.model, param);
      }) {}

bool HuggingFaceCheckpoint::HasTiedCopy() const {
  model::ParamDecl table;
  table.name = "embedding.table";
  table.shape = {config_.model.vocab_size(), config_.model.hidden_size()};
  const auto slices = HfTensorsOf(config_.family, config_.model, table);
  if (!slices.ok()) return false;
  const SafetensorsView* head = tensors_.Find(kHead);
  const SafetensorsView* embeddings = tensors_.Find(slices->front().name);
  return config_.model.tie_embeddings() && head != nullptr &&
         embeddings != nullptr && head->type == embeddings->type &&
         head->shape == embeddings->shape && head->bytes == embeddings->bytes;
}

absl::Status HuggingFaceCheckpoint::Check(const model::ModelDecl& decl) const {
  std::set<std::string> spare;
  if (HasTiedCopy()) spare.insert(kHead);
  return tensors_.Check(decl, spare);
}

}  // namespace weft::checkpoint
