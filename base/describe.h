// Small texts for messages to people.
#ifndef WEFT_BASE_DESCRIBE_H_
#define WEFT_BASE_DESCRIBE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace weft {

// `value` as people write it: 4, 0.5, 1e-05, nan.
std::string FormatNumber(double value);

// `text` in quotes, escaped to ASCII, cut after a few dozen characters.
std::string Quoted(absl::string_view text);

// `text` escaped to printable ASCII and cut to `max_size`, ending in "..." if
// cut. Line breaks become blanks.
std::string Shortened(absl::string_view text, size_t max_size);

// "<what>: <reason>", the reason cut to a readable size; `what` alone when
// there is no reason.
std::string WithReason(absl::string_view what, absl::string_view reason);

// The divisors of `n` from 1 to `max`, e.g. "1, 2, 4"; only the largest few
// when there are many. Requires: n >= 1.
std::string Divisors(int64_t n, int64_t max);

// The divisors shared by `a` and `b`. Requires: both >= 1.
std::string CommonDivisors(int64_t a, int64_t b);

}  // namespace weft

#endif  // WEFT_BASE_DESCRIBE_H_
