#include "client/offline_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "schedule/plan.h"

namespace weft::client {
namespace {

// Collects what stands in the way.
class Checker {
 public:
  explicit Checker(const FieldOrigins& origins) : origins_(origins) {}

  // Returns whether the value is in range.
  bool InRange(const std::string& field, int64_t value, int64_t min,
               int64_t max) {
    if (value >= min && value <= max) return true;
    Fail(field, absl::StrCat(value, " is not in [", min, ", ", max, "]"));
    return false;
  }

  void Divides(const std::string& field, int64_t divisor, int64_t value,
               const std::string& what) {
    if (value % divisor == 0) return;
    Fail(field, absl::StrCat(divisor, " does not divide ", what, "=", value));
  }

  void Fail(const std::string& field, const std::string& message) {
    errors_.push_back({origins_.Find(field), field, message});
  }

  std::vector<FieldError> TakeErrors() { return std::move(errors_); }

 private:
  const FieldOrigins& origins_;
  std::vector<FieldError> errors_;
};

constexpr int64_t kMaxWidth = 1 << 20;

// Optional sizes with the defaults of job.proto.
int64_t Ep(const v1::TrainingJob& job) {
  return job.parallel().ep() == 0 ? 1 : job.parallel().ep();
}
int64_t KvHeads(const v1::AttentionConfig& attention) {
  return attention.num_kv_heads() == 0 ? attention.num_heads()
                                       : attention.num_kv_heads();
}

void CheckModel(const v1::ModelConfig& model, Checker& checker) {
  const v1::AttentionConfig& attention = model.attention();
  checker.InRange("model.vocab_size", model.vocab_size(), 2, kMaxWidth);
  checker.InRange("model.hidden_size", model.hidden_size(), 1, 65536);
  const bool has_layers =
      checker.InRange("model.num_layers", model.num_layers(), 1, 1024);
  const bool has_heads = checker.InRange("model.attention.num_heads",
                                         attention.num_heads(), 1, 1024);
  if (has_heads && checker.InRange("model.attention.num_kv_heads",
                                   KvHeads(attention), 1, 1024)) {
    checker.Divides("model.attention.num_kv_heads", KvHeads(attention),
                    attention.num_heads(), "num_heads");
  }
  if (has_heads && attention.head_dim() == 0) {
    checker.Divides("model.attention.num_heads", attention.num_heads(),
                    model.hidden_size(), "model.hidden_size");
  }
  checker.InRange("model.attention.head_dim", attention.head_dim(), 0, 1024);
  for (int i = 0; has_layers && i < model.dense_layers_size(); ++i) {
    checker.InRange(absl::StrCat("model.dense_layers[", i, "]"),
                    model.dense_layers(i), 0, model.num_layers() - 1);
  }
  const bool has_dense = !model.has_moe() || model.dense_layers_size() > 0;
  checker.InRange("model.ffn_hidden_size", model.ffn_hidden_size(),
                  has_dense ? 1 : 0, kMaxWidth);
}

void CheckMoe(const v1::TrainingJob& job, Checker& checker) {
  if (!job.model().has_moe()) return;
  const v1::MoeConfig& moe = job.model().moe();
  if (checker.InRange("model.moe.num_experts", moe.num_experts(), 1, 4096)) {
    checker.InRange("model.moe.top_k", moe.top_k(), 1, moe.num_experts());
    if (Ep(job) > 0) {
      checker.Divides("parallel.ep", Ep(job), moe.num_experts(),
                      "model.moe.num_experts");
    }
  }
  checker.InRange("model.moe.expert_hidden_size", moe.expert_hidden_size(), 1,
                  kMaxWidth);
  checker.InRange("model.moe.shared_expert_hidden_size",
                  moe.shared_expert_hidden_size(), 0, kMaxWidth);
}

void CheckBatch(const v1::TrainingJob& job, Checker& checker) {
  const v1::BatchConfig& batch = job.batch();
  const int64_t world = job.parallel().world();
  checker.InRange("data.sequence_length", job.data().sequence_length(), 1,
                  kMaxWidth);
  const bool has_world = checker.InRange("parallel.world", world, 1, 65536);
  const bool has_ep = checker.InRange("parallel.ep", Ep(job), 1, 65536);
  if (has_world && has_ep) {
    checker.Divides("parallel.ep", Ep(job), world, "parallel.world");
  }
  const bool has_global =
      checker.InRange("batch.global_batch", batch.global_batch(), 1, kMaxWidth);
  const bool has_microbatch =
      checker.InRange("batch.microbatch", batch.microbatch(), 1, 65536);
  if (!has_world || !has_global || !has_microbatch) return;
  const int64_t unit = batch.microbatch() * world;
  if (batch.global_batch() % unit == 0) return;
  checker.Fail("batch.global_batch",
               absl::StrCat(batch.global_batch(), " is not a multiple of ",
                            "batch.microbatch * parallel.world = ", unit));
}

// Who a rank is: its groups.
std::string DescribeRank(const schedule::Plan& plan, int rank) {
  std::string text = absl::StrCat("rank ", rank, " of ", plan.world.size);
  for (fsdp::Axis axis : {fsdp::Axis::kDp, fsdp::Axis::kEdp, fsdp::Axis::kEp}) {
    absl::StrAppend(&text, ", ", fsdp::Name(axis), " {",
                    absl::StrJoin(plan.world.Members(axis, rank), " "), "}");
  }
  return text + "\n";
}

int64_t CountParameters(const schedule::Plan& plan) {
  int64_t total = 0;
  for (const auto& param : plan.model.params) {
    int64_t elements = 1;
    for (int64_t dimension : param.shape) elements *= dimension;
    total += elements;
  }
  return total;
}

}  // namespace

std::vector<FieldError> PlanObstacles(const v1::TrainingJob& job,
                                      const FieldOrigins& origins) {
  Checker checker(origins);
  CheckModel(job.model(), checker);
  CheckMoe(job, checker);
  CheckBatch(job, checker);
  return checker.TakeErrors();
}

absl::StatusOr<v1::GetPlanResponse> CompilePlan(const v1::TrainingJob& job,
                                                int rank, int columns) {
  if (rank < 0 || rank >= job.parallel().world()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " is not in [0, ", job.parallel().world(),
                     "), the job's world"));
  }
  ASSIGN_OR_RETURN(const schedule::Plan plan, schedule::Compile(job));
  RETURN_IF_ERROR(schedule::Verify(plan));
  v1::GetPlanResponse response;
  std::string text = absl::StrCat(DescribeRank(plan, rank),
                                  schedule::ToText(plan, plan.train));
  if (plan.eval.has_value()) {
    absl::StrAppend(&text, "\n", schedule::ToText(plan, *plan.eval));
  }
  response.set_text(text);
  response.set_timeline(schedule::DrawTimeline(plan, plan.train, columns));
  v1::PlanSummary& summary = *response.mutable_summary();
  summary.set_ops(static_cast<int64_t>(plan.train.ops.size()));
  summary.set_microbatches(plan.train.microbatches);
  summary.set_classes(1);
  summary.set_arena_bytes(plan.train.arena_bytes);
  summary.set_parameters(CountParameters(plan));
  summary.set_units(static_cast<int32_t>(plan.units.units.size()));
  return response;
}

}  // namespace weft::client
