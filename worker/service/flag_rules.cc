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

bool IsPort(absl::string_view port, int lowest) {
  int number = 0;
  return std::all_of(port.begin(), port.end(), &absl::ascii_isdigit) &&
         absl::SimpleAtoi(port, &number) && number >= lowest && number <= 65535;
}

bool IsAddress(absl::string_view address, int lowest_port) {
  const size_t colon = address.rfind(':');
  return colon != absl::string_view::npos && IsHost(address.substr(0, colon)) &&
         IsPort(address.substr(colon + 1), lowest_port);
}

}  // namespace

absl::Status CheckCoordinator(absl::string_view coordinator) {
  if (IsAddress(coordinator, 1)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--coordinator=", coordinator,
                   " is not HOST:PORT with a port from 1 to 65535"));
}

absl::Status CheckListenAddress(absl::string_view flag,
                                absl::string_view address) {
  if (IsAddress(address, 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", address,
                   " is not HOST:PORT with a port from 0 to 65535"));
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
