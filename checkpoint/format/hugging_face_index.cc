#include "checkpoint/format/hugging_face_index.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/format/json_fields.h"
#include "nlohmann/json.hpp"

namespace weft::checkpoint {
namespace {

// Whether `name` is a safetensors file of the folder itself.
bool IsFileName(const nlohmann::json& name) {
  if (!name.is_string()) return false;
  const auto& text = name.get_ref<const std::string&>();
  return absl::EndsWith(text, ".safetensors") &&
         text.find('/') == std::string::npos &&
         text.find('\0') == std::string::npos;
}

}  // namespace

absl::StatusOr<HfIndex> ParseHfIndex(absl::string_view json) {
  const auto object = ParseJsonObject(json, kMaxHfIndexBytes);
  if (!object.ok()) return absl::DataLossError(object.status().message());
  for (const auto& [key, value] : object->items()) {
    if (key == "weight_map" || key == "metadata") continue;
    return absl::DataLossError(absl::StrCat(
        ShortText(key), " is not known; an index has weight_map and metadata"));
  }
  const auto map = object->find("weight_map");
  if (map == object->end() || !map->is_object() || map->empty()) {
    return absl::DataLossError(
        "weight_map must be an object with a file for each tensor");
  }
  HfIndex index;
  for (const auto& [tensor, file] : map->items()) {
    if (!IsFileName(file)) {
      return absl::DataLossError(
          absl::StrCat("weight_map.", ShortText(tensor), "=", ShortText(file),
                       ": must be the name of a .safetensors file in the same "
                       "folder"));
    }
    index[tensor] = file.get_ref<const std::string&>();
  }
  return index;
}

}  // namespace weft::checkpoint
