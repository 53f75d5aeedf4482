// The rules a weft.v1.TrainingJob must keep, as tables.
//
// RangeRules() bound one number each, read by reflection from its field path.
// RelationRules() tie fields together. Presence of required messages, known
// enum values and known fields are checked for every field alike; see
// validate.h, which applies all of this.
#ifndef WEFT_SCHEDULE_RULES_JOB_RULES_H_
#define WEFT_SCHEDULE_RULES_JOB_RULES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/descriptor.h"
#include "weft/v1/job.pb.h"

namespace weft::schedule {

// What a number that is not set (zero) means.
enum class WhenZero {
  kRefused,  // required field
  kDefault,  // the field has a default
  kAbsent,   // the field is left out; a relation rule says when it may be
  kValue,    // zero is a value like any other
};

// Bounds of one number.
struct RangeRule {
  absl::string_view field;  // path from the job, e.g. "model.vocab_size"
  WhenZero when_zero;
  double min;
  double max;
  bool min_excluded = false;
  bool max_excluded = false;

  // E.g. "2 to 1048576" or "above 0 and below 1".
  std::string Allowed() const;
};
absl::Span<const RangeRule> RangeRules();

// A rule over several fields, or over one that is not a number.
struct RelationRule {
  // Path of the field to change; the violation names it.
  absl::string_view field;
  // Comma-separated paths of the other fields, or whole messages, it reads.
  // The rule is skipped when a message on the way to any of them is absent
  // (another rule refuses that, or the defaults keep this one) and when any of
  // them is outside its own range. So `check` sees sane values only.
  absl::string_view reads;
  // What is allowed.
  absl::string_view allowed;
  // What is wrong, with the values seen and, where it helps, values to choose
  // from; nullopt when the rule is kept.
  std::optional<std::string> (*check)(const v1::TrainingJob& job);
  // The rule is skipped, too, unless all others are kept: `check` may declare
  // the model.
  bool needs_legal_job = false;
};
// All of them: those of the model, of its routers, of batch and world, of what
// is computed again, of sharding, of the optimizer, of the rest of the run, of
// taps.
absl::Span<const RelationRule> RelationRules();
absl::Span<const RelationRule> ModelRules();
absl::Span<const RelationRule> RouterRules();
absl::Span<const RelationRule> BatchRules();
absl::Span<const RelationRule> RecomputeRules();
absl::Span<const RelationRule> FsdpRules();
absl::Span<const RelationRule> OptimizerRules();
absl::Span<const RelationRule> RunRules();
absl::Span<const RelationRule> TapRules();

// Something legal that systems of this kind commonly refuse.
struct LiftedRule {
  absl::string_view field;
  absl::string_view refused_elsewhere;
  absl::string_view why_legal;
};
absl::Span<const LiftedRule> LiftedRules();

// A rule about files, which only workers see: a job that breaks it fails as it
// starts. Fields as in RelationRule.
struct WorkerRule {
  absl::string_view field;
  absl::string_view reads;
  absl::string_view allowed;
};
absl::Span<const WorkerRule> WorkerRules();

// A message that a job must have, of those whose parent it has.
struct RequiredMessage {
  absl::string_view path;
  absl::string_view when = "";                           // empty: always
  bool (*needed)(const v1::TrainingJob& job) = nullptr;  // null: always
};
absl::Span<const RequiredMessage> RequiredMessages();

// Something legal but probably not meant.
struct WarningRule {
  absl::string_view field;
  std::optional<std::string> (*check)(const v1::TrainingJob& job);
};
absl::Span<const WarningRule> WarningRules();

// An enum value as job files write it: "no_shard" for
// SHARDING_STRATEGY_NO_SHARD.
std::string EnumText(const google::protobuf::EnumValueDescriptor& value);

// Sequences of the largest microbatch on one rank, and how many microbatches a
// step has; 0 where the job does not say. Require: what the batch says is in
// its range.
int64_t LargestMicrobatch(const v1::TrainingJob& job);
int64_t Microbatches(const v1::TrainingJob& job);

// Number of decoder layers, and of depths, with experts.
int MoeLayers(const v1::ModelConfig& model);
// Whether there are layers, none of which has experts: of a pattern that cannot
// be read, nothing is known.
bool LacksExperts(const v1::ModelConfig& model);
// parallel.ep with its default.
int ExpertParallelSize(const v1::TrainingJob& job);
// model.attention.num_kv_heads and head_dim with their defaults. HeadDim
// requires num_heads above 0.
int KvHeads(const v1::TrainingJob& job);
int64_t HeadDim(const v1::TrainingJob& job);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_RULES_JOB_RULES_H_
