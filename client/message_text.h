// Protobuf messages as text for people and scripts.
#ifndef WEFT_CLIENT_MESSAGE_TEXT_H_
#define WEFT_CLIENT_MESSAGE_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace weft::client {

// JSON as protobuf maps it, with the field names of the .proto files and every
// field without presence, so that keys do not come and go. 64-bit integers are
// strings, as that mapping says. Ends with a newline.
std::string ToJson(const google::protobuf::Message& message);
// The same on one line.
std::string ToJsonLine(const google::protobuf::Message& message);

// YAML with the fields that are set, as ParseYaml() reads it back. Times are
// RFC 3339. Ends with a newline.
std::string ToYaml(const google::protobuf::Message& message);

// `value` with the fewest digits that read back as the same number.
std::string ShortestDouble(double value);

// `text` as a YAML scalar: plain when that reads back as the same text, else in
// quotes.
std::string YamlString(absl::string_view text);

}  // namespace weft::client

#endif  // WEFT_CLIENT_MESSAGE_TEXT_H_
