#include "client/offline_plan.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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

  // The same for a value that has to be given. Not given is 0, as the
  // coordinator takes it.
  bool IsGiven(const std::string& field, int64_t value, int64_t min,
               int64_t max) {
    if (value != 0) return InRange(field, value, min, max);
    Fail(field,
         absl::StrCat("is required and not set; must be ", min, " to ", max));
    return false;
  }

  // Whether a message that has to be there is.
  bool IsPresent(const std::string& field, bool is_present) {
    if (!is_present) Fail(field, "is required and not set");
    return is_present;
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
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxLayerPasses = 32768;  // of one step

// Optional sizes with the defaults of job.proto.
int64_t Ep(const v1::TrainingJob& job) {
  return job.parallel().ep() == 0 ? 1 : job.parallel().ep();
}
int64_t KvHeads(const v1::AttentionConfig& attention) {
  return attention.num_kv_heads() == 0 ? attention.num_heads()
                                       : attention.num_kv_heads();
}

void CheckAttention(const v1::ModelConfig& model, Checker& checker) {
  if (!checker.IsPresent("model.attention", model.has_attention())) return;
  const v1::AttentionConfig& attention = model.attention();
  const bool has_heads = checker.IsGiven("model.attention.num_heads",
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
}

void CheckModel(const v1::ModelConfig& model, Checker& checker) {
  checker.IsGiven("model.vocab_size", model.vocab_size(), 2, kMaxWidth);
  checker.IsGiven("model.hidden_size", model.hidden_size(), 1, 65536);
  const bool has_layers =
      checker.IsGiven("model.num_layers", model.num_layers(), 1, kMaxLayers);
  CheckAttention(model, checker);
  for (int i = 0; has_layers && i < model.dense_layers_size(); ++i) {
    checker.InRange(absl::StrCat("model.dense_layers[", i, "]"),
                    model.dense_layers(i), 0, model.num_layers() - 1);
  }
  const bool has_dense = !model.has_moe() || model.dense_layers_size() > 0;
  if (has_dense) {
    checker.IsGiven("model.ffn_hidden_size", model.ffn_hidden_size(), 1,
                    kMaxWidth);
  } else {
    checker.InRange("model.ffn_hidden_size", model.ffn_hidden_size(), 0,
                    kMaxWidth);
  }
}

void CheckMoe(const v1::TrainingJob& job, Checker& checker) {
  if (!job.model().has_moe()) return;
  const v1::MoeConfig& moe = job.model().moe();
  if (checker.IsGiven("model.moe.num_experts", moe.num_experts(), 1, 4096)) {
    checker.IsGiven("model.moe.top_k", moe.top_k(), 1, moe.num_experts());
    if (Ep(job) > 0) {
      checker.Divides("parallel.ep", Ep(job), moe.num_experts(),
                      "model.moe.num_experts");
    }
  }
  checker.IsGiven("model.moe.expert_hidden_size", moe.expert_hidden_size(), 1,
                  kMaxWidth);
  const double factor = moe.max_rows_factor();
  if (factor != 0 && !(factor >= 1 && factor <= 65536)) {
    checker.Fail("model.moe.max_rows_factor",
                 absl::StrCat(factor, " is not in [1, 65536]"));
  }
  checker.InRange("model.moe.shared_expert_hidden_size",
                  moe.shared_expert_hidden_size(), 0, kMaxWidth);
}

// The world, when it and its groups are legal; else 0.
int64_t CheckWorld(const v1::TrainingJob& job, Checker& checker) {
  if (!checker.IsPresent("parallel", job.has_parallel())) return 0;
  const int64_t world = job.parallel().world();
  const bool has_world = checker.IsGiven("parallel.world", world, 1, 65536);
  const bool has_ep = checker.InRange("parallel.ep", Ep(job), 1, 65536);
  if (!has_world || !has_ep) return 0;
  checker.Divides("parallel.ep", Ep(job), world, "parallel.world");
  return world;
}

// A plan grows with the layers that a step passes.
void CheckPlanSize(int64_t microbatches, int64_t layers, Checker& checker) {
  const int64_t passes = microbatches * layers;
  if (layers < 1 || layers > kMaxLayers || passes <= kMaxLayerPasses) return;
  checker.Fail(
      "batch.global_batch",
      absl::StrCat(microbatches, " microbatches of ", layers, " layers make ",
                   passes, " layer passes in one step; at most ",
                   kMaxLayerPasses));
}

void CheckMicrobatches(const v1::TrainingJob& job, Checker& checker) {
  int64_t sum = 0;
  for (int64_t sequences : job.batch().microbatches()) {
    if (sequences < 1 || sequences > 65536) {
      checker.Fail("batch.microbatches",
                   absl::StrCat(sequences, " is not in [1, 65536]"));
      return;
    }
    sum += sequences;
  }
  const int64_t all = sum * job.parallel().world();
  if (all != job.batch().global_batch()) {
    checker.Fail(
        "batch.microbatches",
        absl::StrCat(
            "they add up to ", sum, ", times parallel.world to ", all,
            ", not to batch.global_batch = ", job.batch().global_batch()));
    return;
  }
  CheckPlanSize(job.batch().microbatches_size(), job.model().num_layers(),
                checker);
}

void CheckBatch(const v1::TrainingJob& job, Checker& checker) {
  const v1::BatchConfig& batch = job.batch();
  if (checker.IsPresent("data", job.has_data())) {
    checker.IsGiven("data.sequence_length", job.data().sequence_length(), 1,
                    kMaxWidth);
  }
  const int64_t world = CheckWorld(job, checker);
  if (!checker.IsPresent("batch", job.has_batch())) return;
  const bool has_global =
      checker.IsGiven("batch.global_batch", batch.global_batch(), 1, kMaxWidth);
  if (batch.microbatches_size() > 0) {
    if (world > 0 && has_global) CheckMicrobatches(job, checker);
    return;
  }
  const bool has_microbatch =
      checker.IsGiven("batch.microbatch", batch.microbatch(), 1, 65536);
  if (world == 0 || !has_global || !has_microbatch) return;
  const int64_t unit = batch.microbatch() * world;
  if (batch.global_batch() % unit != 0) {
    checker.Fail("batch.global_batch",
                 absl::StrCat(batch.global_batch(), " is not a multiple of ",
                              "batch.microbatch * parallel.world = ", unit));
    return;
  }
  CheckPlanSize(batch.global_batch() / unit, job.model().num_layers(), checker);
}

void CheckSlots(const v1::FsdpConfig& fsdp, Checker& checker) {
  const std::string field = "fsdp.buffer_slots";
  if (!checker.InRange(field, fsdp.buffer_slots(), 0, 1024)) return;
  const bool is_sharded =
      fsdp.strategy() == v1::SHARDING_STRATEGY_UNSPECIFIED ||
      fsdp.strategy() == v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS;
  if (fsdp.buffer_slots() > 0 && !is_sharded) {
    checker.Fail(field, "must be 0 unless strategy is optim_grads_params");
  }
}

}  // namespace

std::vector<FieldError> PlanObstacles(const v1::TrainingJob& job,
                                      const FieldOrigins& origins) {
  Checker checker(origins);
  if (checker.IsPresent("model", job.has_model())) {
    CheckModel(job.model(), checker);
  }
  CheckMoe(job, checker);
  CheckBatch(job, checker);
  CheckSlots(job.fsdp(), checker);
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
  v1::GetPlanResponse response;
  std::string text = absl::StrCat(schedule::DescribeRank(plan, rank),
                                  schedule::ToText(plan, plan.train));
  if (plan.eval.has_value()) {
    absl::StrAppend(&text, "\n", schedule::ToText(plan, *plan.eval));
  }
  if (plan.tapped.has_value()) {
    absl::StrAppend(&text, "\n", schedule::ToText(plan, *plan.tapped));
  }
  absl::StrAppend(&text, "\n", schedule::DescribeValues(plan));
  response.set_text(text);
  response.set_timeline(schedule::DrawTimeline(plan, plan.train, columns));
  *response.mutable_summary() = schedule::Summarize(plan);
  return response;
}

}  // namespace weft::client
