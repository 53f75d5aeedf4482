// Globs of names.
#ifndef WEFT_BASE_GLOB_H_
#define WEFT_BASE_GLOB_H_

#include "absl/strings/string_view.h"

namespace weft {

// Whether all of `name` fits `pattern`: `*` stands for any characters, none
// included, `?` for any one, and everything else for itself. Takes time
// proportional to the product of both lengths at worst.
bool MatchesGlob(absl::string_view pattern, absl::string_view name);

}  // namespace weft

#endif  // WEFT_BASE_GLOB_H_
