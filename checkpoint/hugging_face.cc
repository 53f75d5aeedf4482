#include "checkpoint/hugging_face.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/file/mapped_file.h"
#include "base/status_macros.h"
#include "checkpoint/format/hugging_face_index.h"
#include "checkpoint/format/safetensors_float.h"

namespace weft::checkpoint {
namespace {

constexpr char kConfig[] = "config.json";
constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kHead[] = "lm_head.weight";
constexpr char kEmbeddings[] = "model.embed_tokens.weight";

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

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// What is wrong with tensors, by kind.
class Problems {
 public:
  void Add(const char* kind, std::string what) {
    by_kind_[kind].push_back(std::move(what));
  }
  bool IsEmpty() const { return by_kind_.empty(); }

  // "missing: a, b and 3 more; left over: c"
  std::string Text() const {
    std::vector<std::string> parts;
    for (const auto& [kind, all] : by_kind_) {
      const size_t shown = std::min<size_t>(all.size(), 8);
      const std::vector<std::string> first(all.begin(), all.begin() + shown);
      std::string text = absl::StrCat(kind, ": ", absl::StrJoin(first, ", "));
      if (shown < all.size()) {
        absl::StrAppend(&text, " and ", all.size() - shown, " more");
      }
      parts.push_back(std::move(text));
    }
    return absl::StrJoin(parts, "; ");
  }

 private:
  std::map<std::string, std::vector<std::string>> by_kind_;
};

// Adds what is wrong with `found`, the tensor in the files, null when there is
// none, that should be `tensor`.
void CheckTensor(const HfTensor& tensor, const SafetensorsView* found,
                 Problems& problems) {
  if (found == nullptr) {
    problems.Add("missing", tensor.name);
  } else if (found->shape != tensor.shape) {
    problems.Add("of another shape",
                 absl::StrCat(tensor.name, " ", ShapeText(found->shape),
                              " (must be ", ShapeText(tensor.shape), ")"));
  } else if (!IsReadAsF32(found->type)) {
    problems.Add("of another type than F32, BF16 or F16",
                 absl::StrCat(tensor.name, " ", Name(found->type)));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<HuggingFaceCheckpoint>>
HuggingFaceCheckpoint::Open(const std::string& folder) {
  ASSIGN_OR_RETURN(HfConfig config, OpenConfig(folder));
  ASSIGN_OR_RETURN(std::vector<SafetensorsFile> files, OpenFiles(folder));
  return std::unique_ptr<HuggingFaceCheckpoint>(
      new HuggingFaceCheckpoint(folder, std::move(config), std::move(files)));
}

HuggingFaceCheckpoint::HuggingFaceCheckpoint(std::string folder,
                                             HfConfig config,
                                             std::vector<SafetensorsFile> files)
    : folder_(std::move(folder)),
      config_(std::move(config)),
      files_(std::move(files)) {
  for (const SafetensorsFile& file : files_) {
    for (const SafetensorsView& tensor : file.tensors()) {
      tensors_[tensor.name] = &tensor;
    }
  }
}

const SafetensorsView* HuggingFaceCheckpoint::Find(
    const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : it->second;
}

bool HuggingFaceCheckpoint::HasTiedCopy() const {
  const SafetensorsView* head = Find(kHead);
  const SafetensorsView* embeddings = Find(kEmbeddings);
  return config_.model.tie_embeddings() && head != nullptr &&
         embeddings != nullptr && head->type == embeddings->type &&
         head->shape == embeddings->shape && head->bytes == embeddings->bytes;
}

absl::Status HuggingFaceCheckpoint::Check(const model::ModelDecl& decl) const {
  Problems problems;
  std::set<std::string> known;
  if (HasTiedCopy()) known.insert(kHead);
  for (const model::ParamDecl& param : decl.params) {
    const auto tensors = HfTensorsOf(config_.family, config_.model, param);
    if (!tensors.ok()) {
      problems.Add("not in the model of config.json",
                   std::string(tensors.status().message()));
      continue;
    }
    for (const HfTensor& tensor : *tensors) {
      known.insert(tensor.name);
      CheckTensor(tensor, Find(tensor.name), problems);
    }
  }
  for (const auto& [name, tensor] : tensors_) {
    if (known.count(name) == 0) problems.Add("left over", name);
  }
  if (problems.IsEmpty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      folder_, ": not a checkpoint of the model: ", problems.Text()));
}

absl::Status HuggingFaceCheckpoint::Read(const model::ParamDecl& param,
                                         int64_t begin,
                                         absl::Span<float> out) const {
  ASSIGN_OR_RETURN(const std::vector<HfTensor> tensors,
                   HfTensorsOf(config_.family, config_.model, param),
                   _ << folder_);
  const int64_t end = begin + static_cast<int64_t>(out.size());
  int64_t tensor_begin = 0;
  for (const HfTensor& tensor : tensors) {
    const int64_t tensor_end = tensor_begin + tensor.elements();
    const int64_t from = std::max(begin, tensor_begin);
    const int64_t to = std::min(end, tensor_end);
    if (from < to) {
      const SafetensorsView* found = Find(tensor.name);
      Problems problems;
      CheckTensor(tensor, found, problems);
      if (!problems.IsEmpty()) {
        return absl::InvalidArgumentError(
            absl::StrCat(folder_, ": ", problems.Text()));
      }
      CopyAsF32(*found, from - tensor_begin,
                out.subspan(from - begin, to - from));
    }
    tensor_begin = tensor_end;
  }
  if (begin < 0 || end > tensor_begin) {
    return absl::InvalidArgumentError(
        absl::StrCat("elements [", begin, ", ", end, ") of parameter \"",
                     param.name, "\" are not inside its ", tensor_begin));
  }
  return absl::OkStatus();
}

}  // namespace weft::checkpoint
