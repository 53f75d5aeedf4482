#include "coordinator/core/admission.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/core/plan_compiler.h"
#include "schedule/rules/validate.h"
#include "weft/v1/job.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

// Bytes of the plan on its way to a worker.
int64_t WireBytes(const CompiledPlan& plan) {
  size_t bytes = plan.train.ByteSizeLong() + plan.units.ByteSizeLong();
  if (plan.eval.has_value()) bytes += plan.eval->ByteSizeLong();
  if (plan.tapped.has_value()) bytes += plan.tapped->ByteSizeLong();
  return static_cast<int64_t>(bytes);
}

absl::Status CheckWireBytes(const CompiledPlan& plan, int global_batch) {
  const int64_t bytes = WireBytes(plan);
  if (bytes <= kMaxPlanBytes) return absl::OkStatus();
  return schedule::ToStatus(
      {{"batch.global_batch",
        absl::StrCat("batch.global_batch=", global_batch, " makes a plan of ",
                     plan.train.ops_size(), " ops and ", bytes,
                     " bytes; must be at most ", kMaxPlanBytes,
                     " bytes: take fewer microbatches or layers")}});
}

}  // namespace

absl::StatusOr<AdmittedJob> Admit(const v1::TrainingJob& job,
                                  const PlanCompiler& compiler) {
  schedule::Validation validation = schedule::Validate(job);
  if (!validation.violations.empty())
    return schedule::ToStatus(validation.violations);
  ASSIGN_OR_RETURN(CompiledPlan plan, compiler.Compile(job),
                   _ << "the job is legal but does not compile");
  RETURN_IF_ERROR(CheckWireBytes(plan, job.batch().global_batch()));
  AdmittedJob admitted;
  admitted.warnings = std::move(validation.warnings);
  admitted.plan = std::make_shared<const CompiledPlan>(std::move(plan));
  return admitted;
}

absl::StatusOr<v1::GetPlanResponse> DescribePlan(const v1::TrainingJob& job,
                                                 int rank,
                                                 const PlanCompiler& compiler) {
  const schedule::Validation validation = schedule::Validate(job);
  if (!validation.violations.empty())
    return schedule::ToStatus(validation.violations);
  if (rank < 0 || rank >= job.parallel().world()) {
    return schedule::ToStatus(
        {{"rank", absl::StrCat("rank=", rank, "; must be 0 to ",
                               job.parallel().world() - 1)}});
  }
  ASSIGN_OR_RETURN(PlanTexts texts, compiler.Describe(job, rank));
  v1::GetPlanResponse response;
  response.set_text(std::move(texts.text));
  response.set_timeline(std::move(texts.timeline));
  *response.mutable_summary() = std::move(texts.summary);
  return response;
}

}  // namespace weft::coordinator
