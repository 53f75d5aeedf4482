#include "base/library_version.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {

std::string ToString(const Version& version) {
  return absl::StrCat(version.major, ".", version.minor, ".", version.patch);
}

Version VersionOf(int64_t number, int64_t major_unit, int64_t minor_unit) {
  Version version;
  version.major = static_cast<int>(number / major_unit);
  version.minor = static_cast<int>(number % major_unit / minor_unit);
  version.patch = static_cast<int>(number % minor_unit);
  return version;
}

absl::Status CheckLibraries(absl::Span<const LibraryVersion> libraries) {
  std::vector<std::string> old;
  for (const LibraryVersion& library : libraries) {
    if (!(library.version < library.least)) continue;
    old.push_back(absl::StrCat(library.name, " ", ToString(library.version),
                               " is older than ", ToString(library.least)));
  }
  if (old.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(absl::StrJoin(old, "; "), "; install newer ones"));
}

std::string DescribeLibraries(absl::Span<const LibraryVersion> libraries) {
  return absl::StrJoin(
      libraries, " ", [](std::string* out, const LibraryVersion& library) {
        absl::StrAppend(out, library.name, "=", ToString(library.version));
      });
}

}  // namespace weft
