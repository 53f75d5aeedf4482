// Reads YAML into a protobuf message by the message's own description.
//
// Stricter than the JSON mapping of protobuf, so that a slip of the pen does
// not train another model: a field that does not exist, is given twice, or has
// a value of another type or out of range is an error. Every error is found in
// one pass and says where it is.
#ifndef WEFT_CLIENT_YAML_MESSAGE_H_
#define WEFT_CLIENT_YAML_MESSAGE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace weft::client {

// What is wrong with a field.
struct FieldError {
  std::string origin;   // where it was given: "job.yaml:3:5"
  std::string field;    // path, e.g. "model.moe.top_k"; empty for the whole
  std::string message;  // what is wrong, and what is allowed
};

// "job.yaml:3:5: model.moe.top_k: <message>".
std::string ToString(const FieldError& error);

// Where each field of a message was given.
class FieldOrigins {
 public:
  void Set(absl::string_view field, absl::string_view origin) {
    origins_[std::string(field)] = std::string(origin);
  }

  // The origin of `field`, or of the nearest field around it that was given;
  // empty when there is none. Takes "dense_layers[1]" for elements.
  std::string Find(absl::string_view field) const;

 private:
  std::map<std::string, std::string> origins_;
};

// Reads the YAML `text` into `message`, which is empty. `name` is the text's
// name in origins. Appends to `origins` and returns all errors; the message is
// useful when there are none.
//
// Maps are messages, lists are repeated fields, enums are words (see
// enum_names.h), numbers are decimal and finite, booleans are `true` and
// `false`. Requires: messages without map fields and groups that do not hold
// themselves.
std::vector<FieldError> ParseYaml(absl::string_view text,
                                  absl::string_view name,
                                  google::protobuf::Message* message,
                                  FieldOrigins* origins);

// Sets one field from "path=value", e.g. "model.moe.top_k=1", by the same
// rules; a list or a map replaces what is there. The origin is "--set".
std::vector<FieldError> SetField(absl::string_view assignment,
                                 google::protobuf::Message* message,
                                 FieldOrigins* origins);

}  // namespace weft::client

#endif  // WEFT_CLIENT_YAML_MESSAGE_H_
