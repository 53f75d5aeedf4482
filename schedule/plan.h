// Compile: from a job to what its ranks run.
#ifndef WEFT_SCHEDULE_PLAN_H_
#define WEFT_SCHEDULE_PLAN_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fsdp/unit/unit.h"
#include "model/declaration.h"
#include "model/shape.h"
#include "schedule/program.h"
#include "weft/plan/v1/plan.pb.h"
#include "weft/v1/job.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::schedule {

// Everything a job's ranks share. Today all ranks do the same work, so there is
// one class of ranks and one program of each kind.
struct Plan {
  model::Shape shape;
  model::ModelDecl model;
  fsdp::World world;
  fsdp::UnitAssignment units;
  fsdp::Strategy strategy = fsdp::Strategy::kOptimGradsParams;
  int moments = 2;  // fp32 numbers that the optimizer keeps of every element
  int buffer_slots = 0;   // of its programs
  std::vector<int> taps;  // declared values that the job taps, ascending
  // Declared values that every training step taps, ascending: what routers
  // chose, when the job writes it.
  std::vector<int> routing;
  Program train;
  std::optional<Program> eval;  // when the job validates
  // When the job taps: the training step of output.tap_step, which taps both.
  // Its order and its
  // collectives are those of `train`, its memory is not.
  std::optional<Program> tapped;
};

// Shape, declaration and units of a job, without programs: what a worker
// recomputes. Requires: the job has passed the coordinator's validation.
Plan Declare(const v1::TrainingJob& job);

// Declares, compiles and verifies. Requires: as Declare. Never fails on a valid
// job; an INTERNAL error is a fault of the compiler.
absl::StatusOr<Plan> Compile(const v1::TrainingJob& job);

// What `tapped` of a declared plan taps, ascending: `taps` and `routing`.
std::vector<int> ValuesOfTapStep(const Plan& plan);

// The most gathered buckets of layers that one op of a declared plan reads: so
// many buffer slots there must be, if any.
int LeastBufferSlots(const Plan& plan);

// Proves a plan (see verifier.h): Compile has done so for what it returns.
// INTERNAL, naming op ids, when a proof fails.
absl::Status Verify(const Plan& plan);

// The plan in the notation of the docs, one line an op.
std::string ToText(const Plan& plan, const Program& program);

// The values that output.taps can name, one line each, those of layers that are
// alike together.
std::string DescribeValues(const Plan& plan);

// The plan in numbers, bytes of the largest rank. `state_bytes` are those of
// weights, gradients and optimizer.
v1::PlanSummary Summarize(const Plan& plan);

// One line on who a rank is: its groups. Requires: a rank of the plan's world.
std::string DescribeRank(const Plan& plan, int rank);

// The streams of a program drawn as rows of time, with modelled op costs. What
// stands side by side runs side by side; lengths are not to scale, so that
// every op has room for its name. Lines are at most `max_columns` wide; a
// longer timeline goes on in a further block of rows, and stops after 100
// blocks.
std::string DrawTimeline(const Plan& plan, const Program& program,
                         int max_columns);

// Wire forms. ToProto requires a program that is proved; FromProto trusts
// nothing: it checks every field and verifies the program, so that a lowered
// program never reads out of range. `declared` is what Declare() makes of the
// job. INVALID_ARGUMENT, naming field and value or the proof that fails.
plan::v1::Program ToProto(const Plan& plan, const Program& program);
absl::StatusOr<Program> FromProto(const plan::v1::Program& proto,
                                  const Plan& declared);
plan::v1::UnitAssignment ToProto(const fsdp::UnitAssignment& units);
plan::v1::Binding ToProto(const Binding& binding);
absl::StatusOr<Binding> FromProto(const plan::v1::Binding& proto);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_PLAN_H_
