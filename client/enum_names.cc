#include "client/enum_names.h"

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"

namespace weft::client {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;

constexpr absl::string_view kUnspecified = "UNSPECIFIED";

// What the names of `type` begin with: value 0 is PREFIX_UNSPECIFIED.
absl::string_view Prefix(const EnumDescriptor& type) {
  absl::string_view zero = type.value(0)->name();
  return absl::ConsumeSuffix(&zero, kUnspecified) ? zero : "";
}

}  // namespace

std::string ShortName(const EnumValueDescriptor& value) {
  return absl::AsciiStrToLower(
      absl::StripPrefix(value.name(), Prefix(*value.type())));
}

std::vector<std::string> ShortNames(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 1; i < type.value_count(); ++i) {
    names.push_back(ShortName(*type.value(i)));
  }
  return names;
}

const EnumValueDescriptor* FindEnumValue(const EnumDescriptor& type,
                                         absl::string_view name) {
  for (int i = 1; i < type.value_count(); ++i) {
    const EnumValueDescriptor* value = type.value(i);
    if (name == value->name() || name == ShortName(*value)) return value;
  }
  return nullptr;
}

}  // namespace weft::client
