// The index of a Hugging Face checkpoint that is split into several files.
#ifndef WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_INDEX_H_
#define WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_INDEX_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::checkpoint {

// Largest index that is read, in bytes.
inline constexpr int64_t kMaxHfIndexBytes = 64 << 20;

// The file, inside the checkpoint's folder, of each tensor by name.
using HfIndex = std::map<std::string, std::string>;

// Parses the text of a model.safetensors.index.json. Its "metadata" says
// nothing that the files do not say. Guarantees: there is a tensor, and no file
// name leads out of the folder. DATA_LOSS, naming value and rule, for anything
// else.
absl::StatusOr<HfIndex> ParseHfIndex(absl::string_view json);

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_INDEX_H_
