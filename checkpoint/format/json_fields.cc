#include "checkpoint/format/json_fields.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft::checkpoint {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxShortText = 80;
constexpr size_t kMaxRefusals = 64;

// Checks what the parser that builds values lets through: depth, and keys that
// occur twice, of which it would keep the last.
class Checker : public nlohmann::json_sax<json> {
 public:
  const std::string& error() const { return error_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(json::binary_t&) override { return true; }

  bool start_object(size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool start_array(size_t) override { return Enter(); }
  bool end_array() override { return Leave(); }

  bool key(std::string& key) override {
    if (keys_.back().insert(key).second) return true;
    error_ = absl::StrCat("the key ", ShortText(key), " occurs twice");
    return false;
  }

  bool parse_error(size_t position, const std::string&,
                   const json::exception&) override {
    error_ = absl::StrCat("not valid JSON near byte ", position);
    return false;
  }

 private:
  bool Enter() {
    keys_.emplace_back();
    if (keys_.size() <= kMaxDepth) return true;
    error_ = absl::StrCat("nested more than ", kMaxDepth, " levels deep");
    return false;
  }
  bool Leave() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> keys_;  // of what is open, outermost first
  std::string error_;
};

// The number of `value`, also in the form {"__float__": "Infinity"}, which
// writers use for what JSON has no number for.
std::optional<double> NumberOf(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_object() || value.size() != 1) return std::nullopt;
  const auto tagged = value.find("__float__");
  if (tagged == value.end() || !tagged->is_string()) return std::nullopt;
  const auto& text = tagged->get_ref<const std::string&>();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

std::optional<int64_t> IntegerOf(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

}  // namespace

absl::StatusOr<json> ParseJsonObject(absl::string_view text,
                                     int64_t max_bytes) {
  if (text.size() > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        text.size(), " bytes of JSON; at most ", max_bytes, " are allowed"));
  }
  Checker checker;
  if (!json::sax_parse(text.begin(), text.end(), &checker)) {
    return absl::InvalidArgumentError(checker.error());
  }
  json object = json::parse(text.begin(), text.end(), /*cb=*/nullptr,
                            /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return absl::InvalidArgumentError("not a JSON object");
  }
  return object;
}

std::string ShortText(const json& value) {
  // Text of ASCII alone can be cut anywhere.
  std::string text = value.dump(/*indent=*/-1, /*indent_char=*/' ',
                                /*ensure_ascii=*/true);
  if (text.size() <= kMaxShortText) return text;
  text.resize(kMaxShortText);
  return text + "...";
}

const json* FieldReader::Take(const char* name) {
  const auto it = object_.find(name);
  if (it == object_.end()) return nullptr;
  read_.insert(name);
  return &*it;
}

const json* FieldReader::TakeUnlessNull(const char* name) {
  const json* value = Take(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool FieldReader::IsNull(const char* name) const {
  const auto it = object_.find(name);
  return it != object_.end() && it->is_null();
}

int64_t FieldReader::Integer(const IntegerField& field) {
  const json* value =
      field.nullable ? TakeUnlessNull(field.name) : Take(field.name);
  if (value == nullptr) return field.fallback;
  const std::optional<int64_t> integer = IntegerOf(*value);
  if (integer.has_value() && *integer >= field.min && *integer <= field.max) {
    return *integer;
  }
  Refuse(field.name,
         absl::StrCat("must be an integer of ", field.min, " to ", field.max));
  return field.fallback;
}

bool FieldReader::Boolean(const char* name, bool fallback) {
  const json* value = Take(name);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Refuse(name, "must be true or false");
  return fallback;
}

double FieldReader::Number(const char* name, double fallback, bool nullable) {
  const json* value = nullable ? TakeUnlessNull(name) : Take(name);
  if (value == nullptr) return fallback;
  const std::optional<double> number = NumberOf(*value);
  if (number.has_value() && std::isfinite(*number)) return *number;
  Refuse(name, "must be a finite number");
  return fallback;
}

std::vector<double> FieldReader::Numbers(const char* name,
                                         std::vector<double> fallback) {
  const json* list = Take(name);
  if (list == nullptr) return fallback;
  std::vector<double> numbers;
  if (list->is_array() && list->size() == fallback.size()) {
    for (const json& element : *list) {
      const std::optional<double> number = NumberOf(element);
      if (!number.has_value() || std::isnan(*number)) break;
      numbers.push_back(*number);
    }
  }
  if (numbers.size() == fallback.size()) return numbers;
  Refuse(name, absl::StrCat("must be a list of ", fallback.size(), " numbers"));
  return fallback;
}

void FieldReader::Refuse(const char* name, absl::string_view rule) {
  refused_.insert(name);
  const auto it = object_.find(name);
  refusals_.push_back(
      absl::StrCat(prefix_, name, it == object_.end() ? " is absent" : "=",
                   it == object_.end() ? "" : ShortText(*it), ": ", rule));
}

void FieldReader::Append(const FieldReader& inner) {
  refusals_.insert(refusals_.end(), inner.refusals_.begin(),
                   inner.refusals_.end());
}

void FieldReader::RefuseTheRest(absl::string_view rule) {
  for (const auto& [name, value] : object_.items()) {
    if (read_.count(name) != 0) continue;
    // The name without its quotes, but with what is not ASCII escaped.
    const std::string quoted = ShortText(name);
    refusals_.push_back(absl::StrCat(prefix_,
                                     quoted.substr(1, quoted.size() - 2), "=",
                                     ShortText(value), ": ", rule));
  }
}

void FieldReader::Require(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (!IsGiven(name)) Refuse(name, "must be given");
  }
}

absl::Status FieldReader::Refusals() const {
  if (refusals_.empty()) return absl::OkStatus();
  std::vector<std::string> told = refusals_;
  if (told.size() > kMaxRefusals) {
    told.resize(kMaxRefusals);
    told.push_back(
        absl::StrCat("and ", refusals_.size() - kMaxRefusals, " more"));
  }
  return absl::InvalidArgumentError(absl::StrJoin(told, "; "));
}

bool FieldReader::AreFine(std::initializer_list<const char*> names) const {
  for (const char* name : names) {
    if (refused_.count(name) != 0) return false;
  }
  return true;
}

}  // namespace weft::checkpoint
