// Text from others, checked before it is sent or shown.
#ifndef WEFT_CLIENT_UTF8_H_
#define WEFT_CLIENT_UTF8_H_

#include <string>

#include "absl/strings/string_view.h"

namespace weft::client {

// True when `text` is well-formed UTF-8, as protobuf's strings must be.
bool IsUtf8(absl::string_view text);

// `text` for a terminal: control characters, which could steer it, and bytes
// that are not UTF-8 are written as `\n`, `\t` or `\xNN`.
std::string Printable(absl::string_view text);

}  // namespace weft::client

#endif  // WEFT_CLIENT_UTF8_H_
