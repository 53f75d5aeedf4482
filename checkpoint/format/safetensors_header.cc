#include "checkpoint/format/safetensors_header.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace weft::checkpoint {
namespace {

using nlohmann::json;

// Builds a header from the events of a JSON parser. The format is three levels
// deep at most, so the place in the text is one of a few:
//
//   kTop -> kRoot -> kMetadata
//                 -> kTensor -> kShape
//                            -> kOffsets
//
// Anything that is not expected in its place ends the parse with `error()`.
class HeaderBuilder : public nlohmann::json_sax<json> {
 public:
  const std::string& error() const { return error_; }
  SafetensorsHeader TakeHeader() { return std::move(header_); }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_float(double, const std::string& text) override {
    return Unexpected(absl::StrCat("the number ", text));
  }
  bool number_integer(int64_t value) override {
    return Unexpected(absl::StrCat("the negative number ", value));
  }
  bool binary(json::binary_t&) override { return Unexpected("binary"); }

  bool number_unsigned(uint64_t value) override {
    const bool is_shape = place_ == Place::kShape;
    if (!is_shape && place_ != Place::kOffsets) {
      return Unexpected(absl::StrCat("the number ", value));
    }
    if (value > INT64_MAX) {
      return Fail(absl::StrCat("the number ", value, " is above ", INT64_MAX));
    }
    std::vector<int64_t>& list = is_shape ? entry_.shape : offsets_;
    list.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) {
      header_.metadata[metadata_key_] = value;
      return true;
    }
    if (place_ != Place::kTensor || key_ != "dtype") {
      return Unexpected("a string");
    }
    const auto type = SafetensorsTypeByName(value);
    if (!type.has_value()) {
      return Fail(absl::StrCat("dtype \"", value, "\" is not known"));
    }
    entry_.type = *type;
    key_.clear();
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::kTop) {
      place_ = Place::kRoot;
      return true;
    }
    if (place_ != Place::kRoot) return Unexpected("an object");
    if (entry_.name == kSafetensorsMetadataKey) {
      place_ = Place::kMetadata;
      return true;
    }
    place_ = Place::kTensor;
    keys_seen_.clear();
    offsets_.clear();
    entry_.shape.clear();
    return true;
  }

  bool key(std::string& key) override {
    switch (place_) {
      case Place::kRoot:
        entry_.name = key;
        if (names_.insert(key).second) return true;
        return Fail("the name occurs twice");
      case Place::kMetadata:
        metadata_key_ = key;
        if (header_.metadata.count(key) == 0) return true;
        return Fail(absl::StrCat("the key \"", key, "\" occurs twice"));
      default:
        return TensorKey(key);
    }
  }

  bool end_object() override {
    if (place_ == Place::kRoot) {
      place_ = Place::kTop;
      return true;
    }
    const bool is_tensor = place_ == Place::kTensor;
    place_ = Place::kRoot;
    return is_tensor ? FinishTensor() : true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::kTensor || key_ == "dtype") {
      return Unexpected("an array");
    }
    place_ = key_ == "shape" ? Place::kShape : Place::kOffsets;
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    key_.clear();
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const json::exception& error) override {
    error_ =
        absl::StrCat("not valid JSON near byte ", position, ": ", error.what());
    return false;
  }

 private:
  enum class Place { kTop, kRoot, kMetadata, kTensor, kShape, kOffsets };

  bool TensorKey(const std::string& key) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return Fail(absl::StrCat("the key \"", key, "\" is not known"));
    }
    if (!keys_seen_.insert(key).second) {
      return Fail(absl::StrCat("the key \"", key, "\" occurs twice"));
    }
    key_ = key;
    return true;
  }

  bool FinishTensor() {
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (keys_seen_.count(key) == 0) {
        return Fail(absl::StrCat("\"", key, "\" is missing"));
      }
    }
    if (offsets_.size() != 2) {
      return Fail(absl::StrCat("data_offsets has ", offsets_.size(),
                               " numbers; it must have 2"));
    }
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    header_.entries.push_back(entry_);
    return true;
  }

  bool Unexpected(absl::string_view what) {
    if (place_ == Place::kTop) {
      return Fail(absl::StrCat("the header is ", what, ", not an object"));
    }
    if (place_ >= Place::kTensor && !key_.empty()) {
      return Fail(absl::StrCat("\"", key_, "\" is or holds ", what));
    }
    return Fail(absl::StrCat(what, " is not allowed here"));
  }

  bool Fail(absl::string_view message) {
    error_ = names_.empty() ? std::string(message)
                            : absl::StrCat("\"", entry_.name, "\": ", message);
    return false;
  }

  Place place_ = Place::kTop;
  SafetensorsHeader header_;
  SafetensorsEntry entry_;  // the entry being read
  std::string key_;         // of entry_, whose value comes next
  std::set<std::string> keys_seen_;
  std::vector<int64_t> offsets_;
  std::string metadata_key_;
  std::set<std::string> names_;
  std::string error_;
};

absl::Status CheckSize(const SafetensorsEntry& entry) {
  const auto bytes = SafetensorsBytes(entry.type, entry.shape);
  if (!bytes.ok()) {
    return absl::DataLossError(
        absl::StrCat("\"", entry.name, "\": ", bytes.status().message()));
  }
  if (entry.end < entry.begin || entry.end - entry.begin != *bytes) {
    return absl::DataLossError(absl::StrCat(
        "\"", entry.name, "\": data_offsets [", entry.begin, ", ", entry.end,
        "] do not hold the ", *bytes, " bytes of ", Name(entry.type), " [",
        absl::StrJoin(entry.shape, ", "), "]"));
  }
  return absl::OkStatus();
}

// Sorts entries by place and checks that they lie back to back from 0.
absl::Status CheckPlaces(SafetensorsHeader& header) {
  std::sort(header.entries.begin(), header.entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end, a.name) <
                     std::tie(b.begin, b.end, b.name);
            });
  int64_t end = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    RETURN_IF_ERROR(CheckSize(entry));
    if (entry.begin != end) {
      return absl::DataLossError(absl::StrCat(
          "\"", entry.name, "\": data begins at ", entry.begin, ", ",
          entry.begin < end ? "inside the tensor before it, which"
                            : "leaving a hole behind the tensor before it, "
                              "which",
          " ends at ", end));
    }
    end = entry.end;
  }
  header.data_bytes = end;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> SafetensorsBytes(SafetensorsType type,
                                         absl::Span<const int64_t> shape) {
  int64_t bits = BitsOf(type);
  for (int64_t dimension : shape) {
    if (dimension < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "shape [", absl::StrJoin(shape, ", "), "] has a negative dimension"));
    }
    if (__builtin_mul_overflow(bits, dimension, &bits)) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape [", absl::StrJoin(shape, ", "), "] of ",
                       Name(type), " is larger than 2^63 bits"));
    }
  }
  if (bits % 8 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape [", absl::StrJoin(shape, ", "), "] of ", Name(type),
                     " has ", bits, " bits, which are not whole bytes"));
  }
  return bits / 8;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(
    absl::string_view text) {
  if (text.empty() || text[0] != '{') {
    return absl::DataLossError("the header does not begin with {");
  }
  if (text.size() > kMaxSafetensorsHeaderBytes) {
    return absl::DataLossError(
        absl::StrCat("the header has ", text.size(), " bytes; at most ",
                     kMaxSafetensorsHeaderBytes, " are allowed"));
  }
  HeaderBuilder builder;
  if (!json::sax_parse(text.begin(), text.end(), &builder)) {
    return absl::DataLossError(absl::StrCat("header: ", builder.error()));
  }
  SafetensorsHeader header = builder.TakeHeader();
  RETURN_IF_ERROR(CheckPlaces(header));
  return header;
}

absl::StatusOr<std::string> JsonString(absl::string_view text) {
  try {
    return json(std::string(text)).dump();
  } catch (const json::exception&) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", absl::CHexEscape(text), "\" is not UTF-8"));
  }
}

absl::StatusOr<std::string> SafetensorsHeaderText(
    const SafetensorsHeader& header) {
  std::string text;
  const char* separator = "{";
  if (!header.metadata.empty()) {
    absl::StrAppend(&text, "{\"", kSafetensorsMetadataKey, "\":");
    for (const auto& [key, value] : header.metadata) {
      ASSIGN_OR_RETURN(const std::string json_key, JsonString(key));
      ASSIGN_OR_RETURN(const std::string json_value, JsonString(value));
      absl::StrAppend(&text, separator, json_key, ":", json_value);
      separator = ",";
    }
    absl::StrAppend(&text, "}");
  }
  for (const SafetensorsEntry& entry : header.entries) {
    ASSIGN_OR_RETURN(const std::string name, JsonString(entry.name));
    absl::StrAppend(&text, separator, name, ":{\"dtype\":\"", Name(entry.type),
                    "\",\"shape\":[", absl::StrJoin(entry.shape, ","),
                    "],\"data_offsets\":[", entry.begin, ",", entry.end, "]}");
    separator = ",";
  }
  absl::StrAppend(&text, text.empty() ? "{}" : "}");
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the header would have ", text.size(), " bytes; readers take at most ",
        kMaxSafetensorsHeaderBytes));
  }
  return text;
}

}  // namespace weft::checkpoint
