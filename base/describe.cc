#include "base/describe.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace weft {
namespace {

constexpr size_t kQuotedSize = 48;
constexpr size_t kReasonSize = 500;
constexpr size_t kMaxDivisors = 12;

}  // namespace

std::string FormatNumber(double value) {
  if (std::abs(value) < 1e15 && value == std::floor(value)) {
    return absl::StrCat(static_cast<int64_t>(value));
  }
  return absl::StrCat(value);
}

std::string Shortened(absl::string_view text, size_t max_size) {
  std::string ascii;
  for (unsigned char c : text.substr(0, max_size + 1)) {
    if (absl::ascii_isspace(c)) {
      ascii += ' ';
    } else if (absl::ascii_isprint(c)) {
      ascii += static_cast<char>(c);
    } else {
      absl::StrAppend(&ascii, "\\x", absl::Hex(c, absl::kZeroPad2));
    }
  }
  if (ascii.size() <= max_size) return ascii;
  return absl::StrCat(ascii.substr(0, max_size - std::min<size_t>(3, max_size)),
                      "...");
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", Shortened(text, kQuotedSize), "\"");
}

std::string WithReason(absl::string_view what, absl::string_view reason) {
  if (reason.empty()) return std::string(what);
  return absl::StrCat(what, ": ", Shortened(reason, kReasonSize));
}

std::string Divisors(int64_t n, int64_t max) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    if (d <= max) divisors.push_back(d);
    if (d != n / d && n / d <= max) divisors.push_back(n / d);
  }
  std::sort(divisors.begin(), divisors.end());
  if (divisors.size() <= kMaxDivisors) return absl::StrJoin(divisors, ", ");
  divisors.erase(divisors.begin(), divisors.end() - kMaxDivisors);
  return absl::StrCat("..., ", absl::StrJoin(divisors, ", "));
}

std::string CommonDivisors(int64_t a, int64_t b) {
  const int64_t gcd = std::gcd(a, b);
  return Divisors(gcd, gcd);
}

}  // namespace weft
