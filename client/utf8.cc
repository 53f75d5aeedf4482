#include "client/utf8.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_format.h"

namespace weft::client {
namespace {

constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};

// Bytes of the sequence that `first` begins; 0 when it begins none.
size_t LengthFrom(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return 2;
  if (first >= 0xe0 && first < 0xf0) return 3;
  return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

// Bytes of the character that `text` begins with, which goes to `point`; 0 when
// it does not begin with one.
size_t TakeCharacter(absl::string_view text, uint32_t* point) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t length = LengthFrom(first);
  if (length == 0 || length > text.size()) return 0;
  *point = length == 1 ? first : first & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0) != 0x80) return 0;
    *point = *point << 6 | (next & 0x3f);
  }
  const bool is_surrogate = *point >= 0xd800 && *point < 0xe000;
  const bool is_in_range = *point >= kSmallest[length] && *point < 0x110000;
  return is_in_range && !is_surrogate ? length : 0;
}

void AppendEscaped(absl::string_view bytes, std::string* text) {
  if (bytes == "\n") {
    *text += "\\n";
  } else if (bytes == "\t") {
    *text += "\\t";
  } else {
    for (char c : bytes) {
      absl::StrAppendFormat(text, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  uint32_t point = 0;
  while (!text.empty()) {
    const size_t length = TakeCharacter(text, &point);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string Printable(absl::string_view text) {
  std::string printable;
  while (!text.empty()) {
    uint32_t point = 0;
    const size_t length = TakeCharacter(text, &point);
    const bool is_control =
        point < 0x20 || (point >= 0x7f && point < 0xa0);  // C0, DEL and C1
    const absl::string_view bytes = text.substr(0, length == 0 ? 1 : length);
    if (length == 0 || is_control) {
      AppendEscaped(bytes, &printable);
    } else {
      printable.append(bytes.data(), bytes.size());
    }
    text.remove_prefix(bytes.size());
  }
  return printable;
}

}  // namespace weft::client
