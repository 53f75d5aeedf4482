#include "coordinator/core/prepare.h"

#include <cstdint>
#include <vector>

#include "coordinator/core/plan_compiler.h"
#include "schedule/rules/job_rules.h"
#include "weft/v1/job_service.pb.h"
#include "weft/worker/v1/worker_control_service.pb.h"

namespace weft::coordinator {
namespace {

constexpr int64_t kDefaultCollectiveTimeoutMs = 60000;

}  // namespace

worker::v1::AttachResponse MakePrepare(const v1::Job& job,
                                       const CompiledPlan& plan, int64_t epoch,
                                       int rank) {
  worker::v1::AttachResponse message;
  worker::v1::Prepare& prepare = *message.mutable_prepare();
  prepare.set_job_id(job.id());
  prepare.set_epoch(epoch);
  *prepare.mutable_job() = job.spec();
  prepare.mutable_binding()->set_rank(rank);
  prepare.mutable_binding()->set_world(job.spec().parallel().world());
  prepare.mutable_binding()->set_ep(schedule::ExpertParallelSize(job.spec()));
  *prepare.mutable_train() = plan.train;
  if (plan.eval.has_value()) *prepare.mutable_eval() = *plan.eval;
  if (plan.tapped.has_value()) *prepare.mutable_tapped() = *plan.tapped;
  *prepare.mutable_units() = plan.units;
  prepare.set_artifacts(job.artifacts());
  return message;
}

std::vector<v1::GroupDeadline> GroupDeadlines(const v1::TrainingJob& job) {
  const int world = job.parallel().world();
  const int ep = schedule::ExpertParallelSize(job);
  const int64_t timeout_ms = job.limits().collective_timeout_ms() != 0
                                 ? job.limits().collective_timeout_ms()
                                 : kDefaultCollectiveTimeoutMs;
  std::vector<v1::GroupDeadline> groups;
  const auto add = [&](const char* name, int size) {
    if (size <= 1) return;
    groups.emplace_back().set_group(name);
    groups.back().set_timeout_ms(timeout_ms);
  };
  const int edp = job.model().has_moe() ? world / ep : 1;
  add("ep", ep);
  add("gather.dp", world);
  add("gather.edp", edp);
  add("reduce.dp", world);
  add("reduce.edp", edp);
  add("control", world);
  return groups;
}

}  // namespace weft::coordinator
