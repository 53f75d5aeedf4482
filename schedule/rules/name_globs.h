// What to say of globs in job fields that fit no name.
#ifndef WEFT_SCHEDULE_RULES_NAME_GLOBS_H_
#define WEFT_SCHEDULE_RULES_NAME_GLOBS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft::schedule {

// A remark to put behind a glob that fits none of `names`: the nearest of them,
// or all there are, each with `*` in place of a layer's index. E.g. `; did you
// mean "layers.*.qkv"?`. Pure.
std::string NearestGlobs(absl::string_view pattern,
                         const std::vector<std::string>& names);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_RULES_NAME_GLOBS_H_
