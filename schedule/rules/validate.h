// Decides whether a job is legal. Nothing else in Weft does: the coordinator
// refuses a job by it, and weftctl plans none that would be refused.
//
// A job is looked at field by field: required messages, unknown fields and enum
// values, ranges; then the rules over several fields, for those whose fields
// are sane. All violations are found in one pass.
//
//   const Validation validation = Validate(job);
//   if (!validation.violations.empty()) return ToStatus(validation.violations);
//
// Pure functions.
#ifndef WEFT_SCHEDULE_RULES_VALIDATE_H_
#define WEFT_SCHEDULE_RULES_VALIDATE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "weft/v1/job.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::schedule {

struct Violation {
  std::string field;        // path from the job, e.g. "model.vocab_size"
  std::string description;  // value seen; what is allowed
};

struct Validation {
  std::vector<Violation> violations;
  // What is legal but probably not meant; empty when there are violations.
  std::vector<std::string> warnings;
};

Validation Validate(const v1::TrainingJob& job);

// The rules that Validate applies, as clients list them.
v1::ListRulesResponse AllRules();

// Type of the payload that carries the violations: a google.rpc.BadRequest.
inline constexpr absl::string_view kBadRequestUrl =
    "type.googleapis.com/google.rpc.BadRequest";

// INVALID_ARGUMENT with the violations in the message, cut to a readable size,
// and all of them in the payload, whose descriptions are shortened as needed
// for the trailers of a call. Requires: `violations` is not empty.
absl::Status ToStatus(const std::vector<Violation>& violations);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_RULES_VALIDATE_H_
