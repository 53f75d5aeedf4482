#include "client/json_file.h"

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file/read_file.h"
#include "base/status_macros.h"
#include "checkpoint/format/json_fields.h"

namespace weft::client {
namespace {

using nlohmann::json;

// No trace or log that is read whole comes near this; a mistaken path may.
constexpr int64_t kMaxBytes = int64_t{1} << 30;

absl::StatusOr<json> Parse(absl::string_view text, const std::string& where) {
  auto object = checkpoint::ParseJsonObject(text, kMaxBytes);
  if (object.ok()) return object;
  return absl::DataLossError(
      absl::StrCat(where, ": ", object.status().message()));
}

}  // namespace

absl::StatusOr<json> ReadJsonFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxBytes));
  return Parse(text, path);
}

absl::StatusOr<std::vector<json>> ReadJsonLines(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxBytes));
  std::vector<json> objects;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    ASSIGN_OR_RETURN(json object,
                     Parse(line, absl::StrCat(path, ": line ", number)));
    objects.push_back(std::move(object));
  }
  return objects;
}

std::string JsonText(const json& value) {
  return value.dump(/*indent=*/-1, /*indent_char=*/' ', /*ensure_ascii=*/false,
                    json::error_handler_t::replace);
}

}  // namespace weft::client
