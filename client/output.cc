#include "client/output.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "client/message_text.h"
#include "client/utf8.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

namespace weft::client {
namespace {

// `text` as JSON, with its quotes.
std::string JsonText(const std::string& text) {
  google::protobuf::Value value;
  value.set_string_value(text);
  std::string json;
  // A string always has a JSON form.
  (void)google::protobuf::util::MessageToJsonString(value, &json);
  return json;
}

// Scales `value` down by `base` and appends the unit it fits.
std::string Scaled(double value, double base,
                   const std::vector<std::string>& units) {
  size_t unit = 0;
  while (std::fabs(value) >= base && unit + 1 < units.size()) {
    value /= base;
    ++unit;
  }
  if (unit == 0 && value == std::floor(value)) {
    return absl::StrFormat("%.0f%s", value, units[0]);
  }
  return absl::StrFormat("%.*f%s", std::fabs(value) < 100 ? 1 : 0, value,
                         units[unit]);
}

}  // namespace

TextTable::TextTable(std::vector<std::string> header) {
  rows_.push_back(std::move(header));
}

void TextTable::AddRow(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = Printable(cell);
  rows_.push_back(std::move(cells));
}

std::string TextTable::ToString() const {
  std::vector<size_t> widths(rows_[0].size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppendFormat(&line, "%-*s  ", static_cast<int>(widths[i]),
                            row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

Record& Record::AddValue(absl::string_view key, Value value) {
  values_.emplace_back(std::string(key), std::move(value));
  return *this;
}

Record& Record::Add(absl::string_view key, absl::string_view value) {
  return AddValue(key, {std::string(value), true});
}

Record& Record::Add(absl::string_view key, int64_t value) {
  return AddValue(key, {absl::StrCat(value), false});
}

Record& Record::Add(absl::string_view key, double value) {
  const bool is_number = std::isfinite(value);  // JSON has no others
  return AddValue(key, {ShortestDouble(value), !is_number});
}

Record& Record::Add(absl::string_view key, bool value) {
  return AddValue(key, {value ? "true" : "false", false});
}

std::string Record::ToString(Format format) const {
  std::string text;
  const char* separator = "{\n";
  size_t width = 0;
  for (const auto& [key, value] : values_) width = std::max(width, key.size());
  for (const auto& [key, value] : values_) {
    switch (format) {
      case Format::kJson:
        absl::StrAppend(&text, separator, "  \"", key, "\": ",
                        value.is_text ? JsonText(value.plain) : value.plain);
        separator = ",\n";
        break;
      case Format::kYaml:
        absl::StrAppend(&text, key, ": ",
                        value.is_text ? YamlString(value.plain) : value.plain,
                        "\n");
        break;
      case Format::kTable:
        absl::StrAppendFormat(&text, "%-*s  %s\n", static_cast<int>(width) + 1,
                              key + ":", Printable(value.plain));
        break;
      case Format::kName:
        absl::StrAppend(&text, value.plain, "\n");
        break;
    }
  }
  if (format == Format::kJson) absl::StrAppend(&text, "\n}\n");
  return text;
}

std::string Human(double value) {
  return Scaled(value, 1000, {"", "k", "M", "G", "T"});
}

std::string HumanBytes(int64_t bytes) {
  return Scaled(static_cast<double>(bytes), 1024,
                {" B", " KiB", " MiB", " GiB", " TiB"});
}

std::string HumanSeconds(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "-";
  const int64_t s = std::llround(seconds);
  if (s < 3600) return absl::StrFormat("%d:%02d", s / 60, s % 60);
  return absl::StrFormat("%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
}

}  // namespace weft::client
