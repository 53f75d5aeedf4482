// Enum values by the short names people write: `combined_1f1b` for
// SCHEDULE_ORDER_COMBINED_1F1B.
#ifndef WEFT_CLIENT_ENUM_NAMES_H_
#define WEFT_CLIENT_ENUM_NAMES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace weft::client {

// The value's name without the prefix all values of its enum share, in lower
// case.
std::string ShortName(const google::protobuf::EnumValueDescriptor& value);

// Short names of all values but the unspecified one.
std::vector<std::string> ShortNames(
    const google::protobuf::EnumDescriptor& type);

// The value of that short or full name; null when there is none, and for the
// unspecified one, which is said by leaving the field out.
const google::protobuf::EnumValueDescriptor* FindEnumValue(
    const google::protobuf::EnumDescriptor& type, absl::string_view name);

}  // namespace weft::client

#endif  // WEFT_CLIENT_ENUM_NAMES_H_
