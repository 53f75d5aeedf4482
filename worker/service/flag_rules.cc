#include "worker/service/flag_rules.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weft::service {
namespace {

constexpr size_t kMaxIdSize = 63;

bool IsHost(absl::string_view host) {
  const bool bracketed =
      host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  return !host.empty() &&
         std::all_of(host.begin(), host.end(), [bracketed](char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.' ||
                  (bracketed && (c == ':' || c == '%'));
         });
}

bool IsPort(absl::string_view port) {
  int number = 0;
  return std::all_of(port.begin(), port.end(), &absl::ascii_isdigit) &&
         absl::SimpleAtoi(port, &number) && number >= 1 && number <= 65535;
}

}  // namespace

absl::Status CheckCoordinator(absl::string_view coordinator) {
  const size_t colon = coordinator.rfind(':');
  if (colon != absl::string_view::npos &&
      IsHost(coordinator.substr(0, colon)) &&
      IsPort(coordinator.substr(colon + 1))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--coordinator=", coordinator,
                   " is not HOST:PORT with a port from 1 to 65535"));
}

absl::Status CheckWorkerId(absl::string_view worker_id) {
  const bool known =
      std::all_of(worker_id.begin(), worker_id.end(), [](char c) {
        return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
      });
  if (known && worker_id.size() <= kMaxIdSize) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--worker_id=", worker_id, " is not at most ", kMaxIdSize,
                   " characters of [A-Za-z0-9._-]"));
}

}  // namespace weft::service
