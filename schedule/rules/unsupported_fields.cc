#include "absl/types/span.h"
#include "schedule/rules/job_rules.h"

namespace weft::schedule {

absl::Span<const UnsupportedField> UnsupportedFields() { return {}; }

}  // namespace weft::schedule
