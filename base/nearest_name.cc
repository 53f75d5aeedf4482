#include "base/nearest_name.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {

int EditDistance(absl::string_view a, absl::string_view b) {
  // Row i holds the distances of the first i characters of `a` to all prefixes
  // of `b`; two rows back are needed for exchanges.
  std::vector<int> before(b.size() + 1);
  std::vector<int> last(b.size() + 1);
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replace = last[j - 1] + (a[i - 1] != b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

std::string NearestName(absl::string_view name,
                        const std::vector<std::string>& names) {
  std::string nearest;
  int best = std::max<int>(1, static_cast<int>(name.size()) / 3) + 1;
  for (const std::string& candidate : names) {
    const int distance = EditDistance(name, candidate);
    if (distance >= best) continue;
    best = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string KnownNames(absl::string_view name,
                       const std::vector<std::string>& names) {
  const std::string nearest = NearestName(name, names);
  if (nearest.empty()) {
    return absl::StrCat("; known: ", absl::StrJoin(names, ", "));
  }
  return absl::StrCat("; did you mean \"", nearest, "\"?");
}

}  // namespace weft
