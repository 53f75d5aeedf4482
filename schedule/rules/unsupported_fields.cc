#include "absl/types/span.h"
#include "schedule/rules/job_rules.h"
#include "weft/v1/job.pb.h"

namespace weft::schedule {
namespace {

constexpr UnsupportedField kUnsupportedFields[] = {
    {"model.mtp"},
    {"model.mamba.norm_over_all_groups"},
    {"model.padding_token"},
    {"model.moe.overlap_shared_expert"},
    {"parallel.dispatcher", v1::DISPATCHER_FLEX},
};

}  // namespace

absl::Span<const UnsupportedField> UnsupportedFields() {
  return kUnsupportedFields;
}

}  // namespace weft::schedule
