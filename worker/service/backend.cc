#include "worker/service/backend.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace weft::service {

absl::StatusOr<DeviceName> ParseDevice(absl::string_view name,
                                       absl::Span<const Backend* const> known) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(name, absl::MaxSplits(':', 1));
  DeviceName device;
  const bool has_ordinal = parts.first.size() < name.size();
  const bool is_number =
      !has_ordinal ||
      (absl::SimpleAtoi(parts.second, &device.ordinal) && device.ordinal >= 0);
  std::vector<absl::string_view> kinds;
  for (const Backend* backend : known) {
    kinds.push_back(backend->kind());
    if (backend->kind() == parts.first) device.backend = backend;
  }
  if (device.backend != nullptr && is_number) return device;
  return absl::InvalidArgumentError(
      absl::StrCat("--device=", name, " is not KIND or KIND:ORDINAL; this ",
                   "build has the kinds: ", absl::StrJoin(kinds, ", ")));
}

absl::Status CheckTransport(absl::string_view kind, const Backend& backend) {
  const std::vector<absl::string_view> known = backend.transports();
  if (kind == kAutoTransport ||
      std::find(known.begin(), known.end(), kind) != known.end()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--transport=", kind, " is none of those of device kind ", backend.kind(),
      ": ", kAutoTransport, ", ", absl::StrJoin(known, ", ")));
}

}  // namespace weft::service
