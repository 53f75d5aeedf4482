#include "schedule/rules/name_globs.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/nearest_name.h"

namespace weft::schedule {
namespace {

// "layers.*.qkv" for "layers.12.qkv".
std::string WithoutIndices(absl::string_view name) {
  std::vector<absl::string_view> parts = absl::StrSplit(name, '.');
  for (absl::string_view& part : parts) {
    const bool number =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
          return absl::ascii_isdigit(c);
        });
    if (number) part = "*";
  }
  return absl::StrJoin(parts, ".");
}

}  // namespace

std::string NearestGlobs(absl::string_view pattern,
                         const std::vector<std::string>& names) {
  std::set<std::string> globs;
  for (const std::string& name : names) globs.insert(WithoutIndices(name));
  return KnownNames(WithoutIndices(pattern), {globs.begin(), globs.end()});
}

}  // namespace weft::schedule
