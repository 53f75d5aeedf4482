#include "client/parity.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"
#include "client/enum_names.h"
#include "google/protobuf/generated_enum_reflection.h"
#include "schedule/rules/validate.h"

namespace weft::client {
namespace {

constexpr std::pair<const char*, ParityAxis> kAxes[] = {
    {"schedule", ParityAxis::kSchedule},
    {"delay_wgrad", ParityAxis::kDelayWgrad},
    {"strategy", ParityAxis::kStrategy},
    {"world", ParityAxis::kWorld},
    {"ep", ParityAxis::kEp},
    {"microbatch", ParityAxis::kMicrobatch},
    {"dispatcher", ParityAxis::kDispatcher},
    {"recompute", ParityAxis::kRecompute},
};

// A job with some fields set, and how to call that.
struct Draft {
  v1::TrainingJob job;
  std::vector<std::string> values;
};

// Every draft with each of the values that `of` gives it; `set` gives the field
// a value and returns how to call that.
template <typename Value>
std::vector<Draft> Cross(
    const std::vector<Draft>& drafts,
    const std::function<std::vector<Value>(const v1::TrainingJob&)>& of,
    const std::function<std::string(v1::TrainingJob&, Value)>& set) {
  std::vector<Draft> crossed;
  for (const Draft& draft : drafts) {
    for (const Value value : of(draft.job)) {
      Draft next = draft;
      next.values.push_back(set(next.job, value));
      crossed.push_back(std::move(next));
    }
  }
  return crossed;
}

// Ranges of job.proto: beyond them no combination is legal, and to list them
// all would take forever.
constexpr int kMaxWorld = 65536;
constexpr int kMaxBatch = 1048576;

// 0 is a size that is not given.
absl::Status CheckSize(const char* field, int value, int max) {
  if (value >= 0 && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, "=", value, "; must be 0 to ", max));
}

std::vector<int> Divisors(int of) {
  std::vector<int> divisors;
  for (int d = 1; d <= of; ++d) {
    if (of % d == 0) divisors.push_back(d);
  }
  return divisors;
}

int WorldOf(const v1::TrainingJob& job) {
  return std::max(1, job.parallel().world());
}

// Sequences a step gives to each rank; 0 when they cannot be divided.
int ShareOf(const v1::TrainingJob& job) {
  const int batch = job.batch().global_batch();
  return batch % WorldOf(job) == 0 ? batch / WorldOf(job) : 0;
}

bool ReducesOnce(v1::ShardingStrategy strategy) {
  return strategy == v1::SHARDING_STRATEGY_NO_SHARD ||
         strategy == v1::SHARDING_STRATEGY_OPTIM;
}

// Sequences of each microbatch on one rank; empty when the job cannot be cut as
// it says.
std::vector<int64_t> CutOf(const v1::TrainingJob& job) {
  const v1::BatchConfig& batch = job.batch();
  if (batch.microbatches_size() > 0) {
    return {batch.microbatches().begin(), batch.microbatches().end()};
  }
  if (batch.microbatch() <= 0) return {};
  return std::vector<int64_t>(ShareOf(job) / batch.microbatch(),
                              batch.microbatch());
}

bool IsEven(const std::vector<int64_t>& cut) {
  return absl::c_all_of(cut, [&](int64_t each) { return each == cut[0]; });
}

// "2", or "2,1,3" where they are not alike.
std::string CutText(const std::vector<int64_t>& cut) {
  if (cut.empty()) return "0";
  return IsEven(cut) ? absl::StrCat(cut[0]) : absl::StrJoin(cut, ",");
}

bool HasRouterLoss(const v1::TrainingJob& job) {
  const v1::RouterLossConfig& loss = job.model().moe().router_loss();
  return loss.aux() != 0 || loss.sequence_aux() != 0 ||
         loss.global_aux() != 0 || loss.z() != 0;
}

// Losses of routers, and means over microbatches that do not count as many
// tokens each, depend on which sequences of the batch share a microbatch; what
// a capacity drops depends on which share one on a rank.
std::string ObjectiveOf(const v1::TrainingJob& job) {
  std::vector<int64_t> cut = CutOf(job);
  if (job.model().moe().has_capacity()) {
    return absl::StrCat("microbatches of ", CutText(cut),
                        " sequences on each of ", WorldOf(job), " ranks");
  }
  const bool means_over_microbatches =
      job.loss().normalization() != v1::LOSS_NORMALIZATION_TOKEN;
  const bool counts_differ =
      !job.data().loss_mask_prefix().empty() || !IsEven(cut);
  if (!HasRouterLoss(job) && !(means_over_microbatches && counts_differ)) {
    return "the mean over the batch";
  }
  for (int64_t& each : cut) each *= WorldOf(job);
  return absl::StrCat("microbatches of ", CutText(cut), " sequences in all");
}

std::string SumClass(const v1::TrainingJob& job) {
  const std::vector<int64_t> cut = CutOf(job);
  const bool one_order = cut.size() <= 1 || WorldOf(job) == 1;
  return absl::StrCat(
      "world=", WorldOf(job), " ep=", std::max(1, job.parallel().ep()),
      " microbatch=", CutText(cut),
      one_order                            ? ""
      : ReducesOnce(job.fsdp().strategy()) ? " one reduction"
                                           : " a reduction each");
}

// As job files write it.
template <typename Enum>
std::string NameOf(Enum value) {
  return ShortName(
      *google::protobuf::GetEnumDescriptor<Enum>()->FindValueByNumber(value));
}

std::vector<Draft> VarySchedule(const std::vector<Draft>& drafts) {
  return Cross<v1::ScheduleOrder>(
      drafts,
      [](const v1::TrainingJob&) {
        return std::vector{v1::SCHEDULE_ORDER_SEQUENTIAL,
                           v1::SCHEDULE_ORDER_COMBINED_1F1B};
      },
      [](v1::TrainingJob& job, v1::ScheduleOrder order) {
        job.mutable_schedule()->set_order(order);
        return absl::StrCat("schedule=", order == v1::SCHEDULE_ORDER_SEQUENTIAL
                                             ? "sequential"
                                             : "combined_1f1b");
      });
}

std::vector<Draft> VaryDelay(const std::vector<Draft>& drafts) {
  return Cross<int>(
      drafts,
      [](const v1::TrainingJob&) {
        return std::vector{0, 1};
      },
      [](v1::TrainingJob& job, int delay) {
        job.mutable_schedule()->set_delay_wgrad(delay != 0);
        return absl::StrCat("delay_wgrad=", delay != 0 ? "true" : "false");
      });
}

std::vector<Draft> VaryStrategy(const std::vector<Draft>& drafts) {
  return Cross<v1::ShardingStrategy>(
      drafts,
      [](const v1::TrainingJob&) {
        return std::vector{v1::SHARDING_STRATEGY_NO_SHARD,
                           v1::SHARDING_STRATEGY_OPTIM,
                           v1::SHARDING_STRATEGY_OPTIM_GRADS,
                           v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS};
      },
      [](v1::TrainingJob& job, v1::ShardingStrategy strategy) {
        job.mutable_fsdp()->set_strategy(strategy);
        return absl::StrCat("strategy=", NameOf(strategy));
      });
}

std::vector<Draft> VaryWorld(const std::vector<Draft>& drafts,
                             int64_t workers) {
  return Cross<int>(
      drafts,
      [&](const v1::TrainingJob&) {
        std::vector<int> worlds;
        for (int world = 1; world <= workers; world *= 2) {
          worlds.push_back(world);
        }
        return worlds;
      },
      [](v1::TrainingJob& job, int world) {
        job.mutable_parallel()->set_world(world);
        return absl::StrCat("world=", world);
      });
}

std::vector<Draft> VaryEp(const std::vector<Draft>& drafts) {
  return Cross<int>(
      drafts, [](const v1::TrainingJob& job) { return Divisors(WorldOf(job)); },
      [](v1::TrainingJob& job, int ep) {
        job.mutable_parallel()->set_ep(ep);
        return absl::StrCat("ep=", ep);
      });
}

// Not a microbatch: what the job says already.
constexpr int kAsItIs = 0;

std::vector<int> MicrobatchesOf(const v1::TrainingJob& job) {
  std::vector<int> microbatches = Divisors(ShareOf(job));
  // A batch that cannot be divided is refused, whatever its microbatch.
  if (job.batch().microbatches_size() > 0 || microbatches.empty()) {
    microbatches.insert(microbatches.begin(), kAsItIs);
  }
  return microbatches;
}

std::vector<Draft> VaryMicrobatch(const std::vector<Draft>& drafts) {
  return Cross<int>(
      drafts, MicrobatchesOf, [](v1::TrainingJob& job, int microbatch) {
        if (microbatch != kAsItIs) {
          job.mutable_batch()->clear_microbatches();
          job.mutable_batch()->set_microbatch(microbatch);
        }
        const auto& uneven = job.batch().microbatches();
        return absl::StrCat("microbatch=",
                            uneven.empty()
                                ? absl::StrCat(job.batch().microbatch())
                                : absl::StrJoin(uneven, ","));
      });
}

std::vector<Draft> VaryDispatcher(const std::vector<Draft>& drafts) {
  return Cross<v1::Dispatcher>(
      drafts,
      [](const v1::TrainingJob&) {
        return std::vector{v1::DISPATCHER_ALLTOALL, v1::DISPATCHER_ALLGATHER,
                           v1::DISPATCHER_FLEX};
      },
      [](v1::TrainingJob& job, v1::Dispatcher dispatcher) {
        job.mutable_parallel()->set_dispatcher(dispatcher);
        return absl::StrCat("dispatcher=", NameOf(dispatcher));
      });
}

v1::RecomputeConfig OnePart(int part) {
  v1::RecomputeConfig config;
  config.add_parts(static_cast<v1::RecomputePart>(part));
  return config;
}

bool HasPart(v1::TrainingJob job, int part) {
  *job.mutable_schedule()->mutable_recompute() = OnePart(part);
  return absl::c_none_of(schedule::Validate(job).violations,
                         [](const schedule::Violation& violation) {
                           return violation.field == "schedule.recompute.parts";
                         });
}

// Nothing, each part that some layer has, and all of layers.
std::vector<Draft> VaryRecompute(const std::vector<Draft>& drafts) {
  static constexpr int kNothing = 0;
  static constexpr int kAll = -1;
  return Cross<int>(
      drafts,
      [](const v1::TrainingJob& job) {
        std::vector<int> settings = {kNothing};
        for (int part = 1; v1::RecomputePart_IsValid(part); ++part) {
          if (HasPart(job, part)) settings.push_back(part);
        }
        settings.push_back(kAll);
        return settings;
      },
      [](v1::TrainingJob& job, int setting) -> std::string {
        job.mutable_schedule()->clear_recompute();
        if (setting == kNothing) return "recompute=nothing";
        v1::RecomputeConfig& config =
            *job.mutable_schedule()->mutable_recompute();
        config.set_full(setting == kAll);
        if (setting == kAll) return "recompute=full";
        config = OnePart(setting);
        return absl::StrCat("recompute=",
                            NameOf(static_cast<v1::RecomputePart>(setting)));
      });
}

}  // namespace

absl::StatusOr<std::vector<ParityAxis>> ParseParityAxes(
    const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const auto& [name, axis] : kAxes) known.push_back(name);
  std::vector<ParityAxis> axes;
  for (const std::string& wanted : names) {
    const auto* it = absl::c_find_if(
        kAxes, [&](const auto& axis) { return axis.first == wanted; });
    if (it == std::end(kAxes)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", wanted, "\" cannot be varied", KnownNames(wanted, known)));
    }
    axes.push_back(it->second);
  }
  return axes;
}

absl::Status CheckParitySizes(const v1::TrainingJob& job) {
  RETURN_IF_ERROR(
      CheckSize("parallel.world", job.parallel().world(), kMaxWorld));
  const v1::BatchConfig& batch = job.batch();
  RETURN_IF_ERROR(
      CheckSize("batch.global_batch", batch.global_batch(), kMaxBatch));
  RETURN_IF_ERROR(CheckSize("batch.microbatch", batch.microbatch(), kMaxBatch));
  for (int sequences : batch.microbatches()) {
    RETURN_IF_ERROR(CheckSize("batch.microbatches", sequences, kMaxBatch));
  }
  return absl::OkStatus();
}

std::vector<ParityRun> ParityRuns(const v1::TrainingJob& base,
                                  const std::vector<ParityAxis>& axes,
                                  int64_t workers) {
  const auto varies = [&](ParityAxis axis) {
    return absl::c_linear_search(axes, axis);
  };
  std::vector<Draft> drafts = {{base, {}}};
  if (varies(ParityAxis::kWorld)) drafts = VaryWorld(drafts, workers);
  if (varies(ParityAxis::kEp)) drafts = VaryEp(drafts);
  if (varies(ParityAxis::kMicrobatch)) drafts = VaryMicrobatch(drafts);
  if (varies(ParityAxis::kStrategy)) drafts = VaryStrategy(drafts);
  if (varies(ParityAxis::kSchedule)) drafts = VarySchedule(drafts);
  if (varies(ParityAxis::kDelayWgrad)) drafts = VaryDelay(drafts);
  if (varies(ParityAxis::kDispatcher)) drafts = VaryDispatcher(drafts);
  if (varies(ParityAxis::kRecompute)) drafts = VaryRecompute(drafts);
  std::vector<ParityRun> runs;
  for (Draft& draft : drafts) {
    ParityRun& run = runs.emplace_back();
    run.values = std::move(draft.values);
    run.objective = ObjectiveOf(draft.job);
    run.sum_class = SumClass(draft.job);
    run.job = std::move(draft.job);
    run.job.mutable_output()->set_final_parameters(true);
    run.job.mutable_output()->set_gradients_step(1);
  }
  return runs;
}

std::string ParityRun::label() const { return absl::StrJoin(values, " "); }

}  // namespace weft::client
