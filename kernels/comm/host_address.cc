#include "kernels/comm/host_address.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace weft::comm {
namespace {

std::string Header(const HostAddress& address) {
  return absl::StrCat("weft.", address.transport, ".1 stream=", address.stream,
                      " rank=", address.rank, " world=", address.world,
                      " host=", address.host, "\n");
}

}  // namespace

absl::StatusOr<std::string> HostIdentity() {
  const char* const path = "/proc/sys/kernel/random/boot_id";
  std::ifstream file(path);
  std::string identity;
  if (!std::getline(file, identity) || identity.empty()) {
    return absl::InternalError(absl::StrCat("cannot read ", path));
  }
  struct stat processes = {};
  const char* const numbers = "/proc/self/ns/pid";
  if (::stat(numbers, &processes) != 0) {
    return absl::InternalError(
        absl::StrCat("cannot read ", numbers, ": ", std::strerror(errno)));
  }
  return absl::StrCat(identity, ".", processes.st_ino);
}

std::string FormatAddress(const HostAddress& address) {
  return Header(address) + address.place;
}

absl::StatusOr<std::string> ParsePlace(absl::string_view text,
                                       const HostAddress& expected) {
  const std::string header = Header(expected);
  if (absl::ConsumePrefix(&text, header)) return std::string(text);
  const absl::string_view begin = text.substr(0, text.find('\n'));
  return absl::InvalidArgumentError(
      absl::StrCat("the address in place ", expected.rank, " begins with \"",
                   begin.substr(0, 200), "\", not with \"",
                   absl::StripSuffix(header, "\n"), "\"; ", expected.transport,
                   " connects transports of one stream on one host"));
}

}  // namespace weft::comm
