#include "absl/types/span.h"
#include "schedule/rules/job_rules.h"

namespace weft::schedule {
namespace {

constexpr UnsupportedField kUnsupportedFields[] = {
    {"model.moe.overlap_shared_expert"},
};

}  // namespace

absl::Span<const UnsupportedField> UnsupportedFields() {
  return kUnsupportedFields;
}

}  // namespace weft::schedule
