#include "client/message_text.h"

#include <cstdlib>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/enum_names.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/timestamp.pb.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/time_util.h"

namespace weft::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::Timestamp;

std::string Json(const Message& message, bool pretty) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  options.add_whitespace = pretty;
  std::string text;
  // Fails for broken Any messages only, and none of ours holds one.
  (void)google::protobuf::util::MessageToJsonString(message, &text, options);
  return text;
}

// Value of a field that is no message; `index` is -1 for a single field.
std::string Scalar(const Message& message, const FieldDescriptor& field,
                   int index) {
  const Reflection& r = *message.GetReflection();
  const auto get = [&](auto single, auto repeated) {
    return index < 0 ? (r.*single)(message, &field)
                     : (r.*repeated)(message, &field, index);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(
          get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(
          get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64));
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(
          get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(
          get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return ShortestDouble(
          get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return ShortestDouble(
          get(&Reflection::GetFloat, &Reflection::GetRepeatedFloat));
    case FieldDescriptor::CPPTYPE_BOOL:
      return get(&Reflection::GetBool, &Reflection::GetRepeatedBool) ? "true"
                                                                     : "false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return ShortName(
          *get(&Reflection::GetEnum, &Reflection::GetRepeatedEnum));
    default:
      return YamlString(
          get(&Reflection::GetString, &Reflection::GetRepeatedString));
  }
}

void AppendFields(const Message& message, const std::string& indent,
                  std::string* text);

// Appends a message behind "name:" or "-": its fields, or `{}`.
void AppendMessage(const Message& message, const std::string& indent,
                   std::string* text) {
  if (message.GetDescriptor() == Timestamp::descriptor()) {
    absl::StrAppend(text, " \"",
                    google::protobuf::util::TimeUtil::ToString(
                        static_cast<const Timestamp&>(message)),
                    "\"\n");
    return;
  }
  std::string fields;
  AppendFields(message, indent, &fields);
  absl::StrAppend(text, fields.empty() ? " {}\n" : "\n", fields);
}

void AppendField(const Message& message, const FieldDescriptor& field,
                 const std::string& indent, std::string* text) {
  const Reflection& r = *message.GetReflection();
  const bool is_message = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  absl::StrAppend(text, indent, field.name(), ":");
  if (!field.is_repeated()) {
    if (is_message) {
      AppendMessage(r.GetMessage(message, &field), indent + "  ", text);
    } else {
      absl::StrAppend(text, " ", Scalar(message, field, -1), "\n");
    }
    return;
  }
  const int size = r.FieldSize(message, &field);
  if (is_message) {
    absl::StrAppend(text, "\n");
    for (int i = 0; i < size; ++i) {
      absl::StrAppend(text, indent, "-");
      AppendMessage(r.GetRepeatedMessage(message, &field, i), indent + "  ",
                    text);
    }
    return;
  }
  std::vector<std::string> values;
  for (int i = 0; i < size; ++i) values.push_back(Scalar(message, field, i));
  absl::StrAppend(text, " [", absl::StrJoin(values, ", "), "]\n");
}

void AppendFields(const Message& message, const std::string& indent,
                  std::string* text) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    AppendField(message, *field, indent, text);
  }
}

// True for what a YAML reader might take for something else than text.
bool LooksSpecial(absl::string_view text) {
  double number;
  if (absl::SimpleAtod(text, &number)) return true;
  const std::string lower = absl::AsciiStrToLower(text);
  for (absl::string_view word :
       {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}) {
    if (lower == word) return true;
  }
  return !absl::ascii_isalpha(text[0]) && text[0] != '/' && text[0] != '_';
}

}  // namespace

std::string ToJson(const Message& message) { return Json(message, true); }

std::string ToJsonLine(const Message& message) {
  return Json(message, false) + "\n";
}

std::string ToYaml(const Message& message) {
  std::string text;
  AppendFields(message, "", &text);
  return text.empty() ? "{}\n" : text;
}

std::string ShortestDouble(double value) {
  for (int digits = 6; digits < 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    if (std::strtod(text.c_str(), nullptr) == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

std::string YamlString(absl::string_view text) {
  const bool is_plain = !text.empty() && !LooksSpecial(text) &&
                        text.find_first_not_of(
                            "abcdefghijklmnopqrstuvwxyz"
                            "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                            "0123456789_./-") == absl::string_view::npos;
  if (is_plain) return std::string(text);
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (absl::ascii_iscntrl(c)) {
      absl::StrAppendFormat(&quoted, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace weft::client
