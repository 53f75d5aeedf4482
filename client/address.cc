#include "client/address.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace weft::client {

absl::StatusOr<std::string> FindCoordinator(absl::string_view flag,
                                            const std::string& folder) {
  if (!flag.empty()) return std::string(flag);
  const char* variable = std::getenv(kCoordinatorVariable);
  if (variable != nullptr && *variable != '\0') return std::string(variable);
  for (std::filesystem::path at = folder;; at = at.parent_path()) {
    std::ifstream file(at / kCoordinatorFile);
    std::string line;
    if (std::getline(file, line)) {
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
