// How commands print what they found: as a table for people, or as JSON or YAML
// for scripts. Data goes to standard output, talk to standard error.
#ifndef WEFT_CLIENT_OUTPUT_H_
#define WEFT_CLIENT_OUTPUT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft::client {

enum class Format { kTable, kJson, kYaml, kName };

// Columns as wide as their widest cell, two blanks apart. Shows control
// characters, which could steer a terminal, as escapes; so do records.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);

  // Requires: as many cells as the header has.
  void AddRow(std::vector<std::string> cells);

  // Ends with a newline.
  std::string ToString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Named values, in order.
class Record {
 public:
  Record& Add(absl::string_view key, absl::string_view value);
  Record& Add(absl::string_view key, const char* value) {
    return Add(key, absl::string_view(value));
  }
  Record& Add(absl::string_view key, int64_t value);
  Record& Add(absl::string_view key, double value);
  Record& Add(absl::string_view key, bool value);

  // One `key: value` a line; an object; the values alone for kName.
  std::string ToString(Format format) const;

 private:
  struct Value {
    std::string plain;  // for people, and in JSON and YAML unless is_text
    bool is_text = false;
  };
  Record& AddValue(absl::string_view key, Value value);

  std::vector<std::pair<std::string, Value>> values_;
};

// Sizes and rates for people: "12.4k", "3.1M"; bytes: "1.5 MiB".
std::string Human(double value);
std::string HumanBytes(int64_t bytes);
// "0:48", "1:02:03".
std::string HumanSeconds(double seconds);

}  // namespace weft::client

#endif  // WEFT_CLIENT_OUTPUT_H_
