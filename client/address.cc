#include "client/address.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/file/read_file.h"

namespace weft::client {
namespace {

constexpr int64_t kMaxAddressBytes = 1 << 12;

}  // namespace

absl::StatusOr<std::string> FindCoordinator(absl::string_view flag,
                                            const std::string& folder) {
  if (!flag.empty()) return std::string(flag);
  const char* variable = std::getenv(kCoordinatorVariable);
  if (variable != nullptr && *variable != '\0') return std::string(variable);
  for (std::filesystem::path at = folder;; at = at.parent_path()) {
    auto text = ReadFile((at / kCoordinatorFile).string(), kMaxAddressBytes);
    if (absl::IsInvalidArgument(text.status())) return text.status();
    if (text.ok()) {
      std::string line = text->substr(0, text->find('\n'));
      absl::StripAsciiWhitespace(&line);
      if (!line.empty()) return line;
    }
    if (at == at.parent_path()) break;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("no coordinator is named; start one with ./weft up, give ",
                   "--coordinator=HOST:PORT or set ", kCoordinatorVariable));
}

}  // namespace weft::client
