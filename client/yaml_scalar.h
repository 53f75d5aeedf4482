// Single values of YAML as values of protobuf fields.
#ifndef WEFT_CLIENT_YAML_SCALAR_H_
#define WEFT_CLIENT_YAML_SCALAR_H_

#include <string>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "yaml-cpp/yaml.h"

namespace weft::client {

// Stores the scalar `node` in `field` of `message`: sets it, or adds to it when
// it is repeated. Returns what is wrong with the value; empty when it was
// stored. Requires: `node` is a scalar and `field` is not a message.
std::string StoreScalar(const YAML::Node& node,
                        const google::protobuf::FieldDescriptor& field,
                        google::protobuf::Message* message);

// What `field` holds, for messages: "an integer", "one of a, b".
std::string ExpectedValue(const google::protobuf::FieldDescriptor& field);

}  // namespace weft::client

#endif  // WEFT_CLIENT_YAML_SCALAR_H_
