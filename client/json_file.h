// JSON that somebody else's program may have written, or an editor changed.
#ifndef WEFT_CLIENT_JSON_FILE_H_
#define WEFT_CLIENT_JSON_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace weft::client {

// A file that holds one object. What ReadFile says; DATA_LOSS, naming the file,
// when it is no JSON object, is nested deeply, or has a key twice in an object,
// of which most readers would see only one.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path);

// A file with an object a line. Errors as ReadJsonFile, with the line.
absl::StatusOr<std::vector<nlohmann::json>> ReadJsonLines(
    const std::string& path);

// `value` in one line. Bytes of strings that are not UTF-8, as names of files
// may have, are replaced.
std::string JsonText(const nlohmann::json& value);

}  // namespace weft::client

#endif  // WEFT_CLIENT_JSON_FILE_H_
