#include "client/yaml_scalar.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/nearest_name.h"
#include "client/enum_names.h"
#include "client/utf8.h"

namespace weft::client {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// yaml-cpp marks quoted scalars, and only them, with this tag.
bool IsQuoted(const YAML::Node& node) { return node.Tag() == "!"; }

// The tag that was written before the value, as in "!!int 3"; empty when there
// was none.
std::string WrittenTag(const YAML::Node& node) {
  const std::string& tag = node.Tag();
  return tag == "?" || IsQuoted(node) ? "" : tag;
}

// What is wrong with the text itself, whatever the field holds.
std::string TextError(const YAML::Node& node, const FieldDescriptor& field) {
  if (!IsUtf8(node.Scalar())) return "is not UTF-8";
  const std::string tag = WrittenTag(node);
  const bool is_text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  if (tag.empty() || (is_text && tag == "tag:yaml.org,2002:str")) return "";
  return absl::StrCat("has the YAML tag \"", tag,
                      "\"; write the value without one");
}

// Whether a number's digits say that it is 0.
bool SaysZero(absl::string_view number) {
  return number.substr(0, number.find_first_of("eE"))
             .find_first_of("123456789") == absl::string_view::npos;
}

std::string NotExpected(const YAML::Node& node, const FieldDescriptor& field) {
  return absl::StrCat(IsQuoted(node) ? "the text " : "", "\"", node.Scalar(),
                      "\" is not ", ExpectedValue(field));
}

bool AreDigits(absl::string_view text) {
  return text.find_first_not_of("0123456789") == absl::string_view::npos;
}

absl::string_view WithoutSign(absl::string_view text) {
  const bool has_sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  return text.substr(has_sign ? 1 : 0);
}

// Decimal digits with an optional sign, and no zero in front: some read 010 as
// eight.
bool IsDecimal(absl::string_view text) {
  text = WithoutSign(text);
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return false;
  return AreDigits(text);
}

// The same with a fraction or an exponent, as in -0.5, .5, 2. and 1e-05.
bool IsDecimalFraction(absl::string_view text) {
  const size_t e = std::min(text.find_first_of("eE"), text.size());
  const absl::string_view mantissa = WithoutSign(text.substr(0, e));
  if (e < text.size()) {
    const absl::string_view exponent = WithoutSign(text.substr(e + 1));
    if (exponent.empty() || !AreDigits(exponent)) return false;
  }
  const size_t point = std::min(mantissa.find('.'), mantissa.size());
  const absl::string_view whole = mantissa.substr(0, point);
  const absl::string_view fraction =
      point < mantissa.size() ? mantissa.substr(point + 1) : "";
  if (!AreDigits(fraction)) return false;
  if (whole.empty()) return !fraction.empty();
  return AreDigits(whole) && IsDecimal(whole);
}

// The integer in `node`, or nothing and a message in `error`.
template <typename T>
std::optional<T> ParseInteger(const YAML::Node& node,
                              const FieldDescriptor& field,
                              std::string* error) {
  T value;
  if (IsQuoted(node) || !IsDecimal(node.Scalar())) {
    *error = NotExpected(node, field);
    return std::nullopt;
  }
  if (!absl::SimpleAtoi(node.Scalar(), &value)) {
    *error = absl::StrCat(node.Scalar(), " is not in [",
                          std::numeric_limits<T>::min(), ", ",
                          std::numeric_limits<T>::max(), "]");
    return std::nullopt;
  }
  return value;
}

std::optional<double> ParseDouble(const YAML::Node& node,
                                  const FieldDescriptor& field,
                                  std::string* error) {
  double value;
  if (IsQuoted(node) || !IsDecimalFraction(node.Scalar()) ||
      !absl::SimpleAtod(node.Scalar(), &value) || !std::isfinite(value)) {
    *error = NotExpected(node, field);
    return std::nullopt;
  }
  if (value == 0 && !SaysZero(node.Scalar())) {
    *error =
        absl::StrCat(node.Scalar(), " is too near to 0 to be told from it");
    return std::nullopt;
  }
  return value;
}

std::optional<bool> ParseBool(const YAML::Node& node,
                              const FieldDescriptor& field,
                              std::string* error) {
  if (!IsQuoted(node)) {
    if (node.Scalar() == "true") return true;
    if (node.Scalar() == "false") return false;
  }
  *error = NotExpected(node, field);
  return std::nullopt;
}

const EnumValueDescriptor* ParseEnum(const YAML::Node& node,
                                     const FieldDescriptor& field,
                                     std::string* error) {
  const EnumValueDescriptor* value =
      FindEnumValue(*field.enum_type(), node.Scalar());
  if (value == nullptr) {
    *error = NotExpected(node, field);
    const std::string nearest =
        NearestName(node.Scalar(), ShortNames(*field.enum_type()));
    if (!nearest.empty()) {
      absl::StrAppend(error, "; did you mean \"", nearest, "\"?");
    }
  }
  return value;
}

}  // namespace

std::string StoreScalar(const YAML::Node& node, const FieldDescriptor& field,
                        Message* message) {
  const Reflection& reflection = *message->GetReflection();
  std::string error = TextError(node, field);
  if (!error.empty()) return error;
  // Calls the setter or the adder, by what the field is.
  const auto store = [&](auto value, auto set, auto add) {
    if (!value) return;
    (reflection.*(field.is_repeated() ? add : set))(message, &field, *value);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      store(ParseInteger<int32_t>(node, field, &error), &Reflection::SetInt32,
            &Reflection::AddInt32);
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      store(ParseInteger<int64_t>(node, field, &error), &Reflection::SetInt64,
            &Reflection::AddInt64);
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      store(ParseInteger<uint64_t>(node, field, &error), &Reflection::SetUInt64,
            &Reflection::AddUInt64);
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      store(ParseDouble(node, field, &error), &Reflection::SetDouble,
            &Reflection::AddDouble);
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      store(ParseBool(node, field, &error), &Reflection::SetBool,
            &Reflection::AddBool);
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      store(std::make_optional(node.Scalar()), &Reflection::SetString,
            &Reflection::AddString);
      break;
    case FieldDescriptor::CPPTYPE_ENUM: {
      const EnumValueDescriptor* value = ParseEnum(node, field, &error);
      if (value == nullptr) break;
      store(std::make_optional(value), &Reflection::SetEnum,
            &Reflection::AddEnum);
      break;
    }
    default:
      return absl::StrCat("fields of type ", field.cpp_type_name(),
                          " cannot be given in YAML");
  }
  return error;
}

std::string ExpectedValue(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "a finite number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_STRING:
      return "text";
    case FieldDescriptor::CPPTYPE_ENUM:
      return absl::StrCat("one of ",
                          absl::StrJoin(ShortNames(*field.enum_type()), ", "));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "a map of fields";
    default:
      return "an integer";
  }
}

}  // namespace weft::client
