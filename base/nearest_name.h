// Finds the name a person probably meant.
#ifndef WEFT_BASE_NEAREST_NAME_H_
#define WEFT_BASE_NEAREST_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft {

// The least number of characters to insert, remove, replace, or exchange with
// their neighbour, that makes `a` into `b`.
int EditDistance(absl::string_view a, absl::string_view b);

// The one of `names` nearest to `name`, the first of them when several are;
// empty when none is near enough to be meant: within a third of the length.
std::string NearestName(absl::string_view name,
                        const std::vector<std::string>& names);

// A remark to put behind "unknown ...": `; did you mean "x"?`, or, when no name
// is near, `; known: a, b, c`.
std::string KnownNames(absl::string_view name,
                       const std::vector<std::string>& names);

}  // namespace weft

#endif  // WEFT_BASE_NEAREST_NAME_H_
