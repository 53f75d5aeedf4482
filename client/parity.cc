#include "client/parity.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"
#include "client/enum_names.h"
#include "client/params_diff.h"
#include "client/run_results.h"
#include "google/protobuf/generated_enum_reflection.h"

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
};

// A job with some fields set, and what to call it.
struct Draft {
  v1::TrainingJob job;
  std::vector<std::string> labels;
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
      next.labels.push_back(set(next.job, value));
      crossed.push_back(std::move(next));
    }
  }
  return crossed;
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

std::string SumClass(const v1::TrainingJob& job) {
  const v1::BatchConfig& batch = job.batch();
  const int microbatches = batch.microbatches_size() > 0
                               ? batch.microbatches_size()
                               : ShareOf(job) / batch.microbatch();
  const bool one_order = microbatches == 1 || WorldOf(job) == 1;
  return absl::StrCat(
      "world=", WorldOf(job), " ep=", std::max(1, job.parallel().ep()),
      " microbatch=", job.batch().microbatch(),
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
      [&](const v1::TrainingJob& job) {
        std::vector<int> worlds;
        for (int world = 1; world <= workers; world *= 2) {
          if (job.batch().global_batch() % world == 0) worlds.push_back(world);
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

std::vector<Draft> VaryMicrobatch(const std::vector<Draft>& drafts) {
  return Cross<int>(
      drafts, [](const v1::TrainingJob& job) { return Divisors(ShareOf(job)); },
      [](v1::TrainingJob& job, int microbatch) {
        job.mutable_batch()->clear_microbatches();
        job.mutable_batch()->set_microbatch(microbatch);
        return absl::StrCat("microbatch=", microbatch);
      });
}

// Whether the groups and the batch can be divided as the job says.
bool Divides(const v1::TrainingJob& job) {
  const int ep = std::max(1, job.parallel().ep());
  if (WorldOf(job) % ep != 0 || ShareOf(job) == 0) return false;
  const auto& cut = job.batch().microbatches();
  if (!cut.empty()) {
    return std::accumulate(cut.begin(), cut.end(), 0) == ShareOf(job);
  }
  const int microbatch = job.batch().microbatch();
  return microbatch > 0 && ShareOf(job) % microbatch == 0;
}

// The first number of a step that is not equal to the bit; empty: all are.
std::string FirstDifference(const StepNumbers& a, const StepNumbers& b,
                            size_t step) {
  const std::tuple<const char*, double, double> numbers[] = {
      {"loss", a.loss, b.loss},
      {"gradient norm", a.grad_norm, b.grad_norm},
      {"objective", a.objective, b.objective},
  };
  for (const auto& [name, x, y] : numbers) {
    if (x == y) continue;
    return absl::StrFormat("%s of step %d is %.17g and %.17g", name, step, x,
                           y);
  }
  if (a.router_losses.size() != b.router_losses.size()) {
    return absl::StrFormat("step %d has %d and %d router losses", step,
                           a.router_losses.size(), b.router_losses.size());
  }
  for (size_t i = 0; i < a.router_losses.size(); ++i) {
    const v1::RouterLoss& x = a.router_losses[i];
    const v1::RouterLoss& y = b.router_losses[i];
    if (x.value() == y.value()) continue;
    return absl::StrFormat("%s of layers.%d of step %d is %.17g and %.17g",
                           x.name(), x.layer(), step, x.value(), y.value());
  }
  return "";
}

// The first step or parameter that is not equal to the bit; empty: all are.
std::string FirstDifference(const std::vector<StepNumbers>& a,
                            const std::vector<StepNumbers>& b,
                            const ParamsDiff& gradients,
                            const ParamsDiff& parameters) {
  if (a.size() != b.size()) {
    return absl::StrCat(a.size(), " and ", b.size(), " steps");
  }
  for (size_t i = 0; i < a.size(); ++i) {
    const std::string first = FirstDifference(a[i], b[i], i + 1);
    if (!first.empty()) return first;
  }
  if (!gradients.identical()) return "gradient of " + gradients.first;
  return parameters.first;
}

// The largest ||a - b|| / ||b|| over parameters, and whose it is.
absl::StatusOr<std::pair<double, std::string>> WorstTensor(
    const ParamFolder& a, const ParamFolder& b) {
  std::pair<double, std::string> worst = {0, ""};
  for (const auto& [name, param] : b.params()) {
    ASSIGN_OR_RETURN(const std::vector<float> x, WholeParam(a, name));
    ASSIGN_OR_RETURN(const std::vector<float> y, WholeParam(b, name));
    if (x.size() != y.size()) {
      return absl::DataLossError(absl::StrCat(name, " has ", x.size(), " and ",
                                              y.size(), " elements"));
    }
    const double relative = NormError(x, y);
    if (relative > worst.first) worst = {relative, name};
  }
  return worst;
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
  std::vector<ParityRun> runs;
  for (Draft& draft : drafts) {
    if (!Divides(draft.job)) continue;
    ParityRun run;
    run.label = absl::StrJoin(draft.labels, " ");
    run.sum_class = SumClass(draft.job);
    run.job = std::move(draft.job);
    run.job.mutable_output()->set_final_parameters(true);
    run.job.mutable_output()->set_gradients_step(1);
    runs.push_back(std::move(run));
  }
  return runs;
}

absl::StatusOr<ParityComparison> CompareRuns(const std::string& a,
                                             const std::string& b,
                                             const ParityBounds& bounds) {
  ASSIGN_OR_RETURN(const auto steps_a, ReadSteps(a));
  ASSIGN_OR_RETURN(const auto steps_b, ReadSteps(b));
  ASSIGN_OR_RETURN(const auto gradients_a, ParamFolder::Open(a + "/gradients"));
  ASSIGN_OR_RETURN(const auto gradients_b, ParamFolder::Open(b + "/gradients"));
  ASSIGN_OR_RETURN(const auto parameters_a, ParamFolder::Open(a));
  ASSIGN_OR_RETURN(const auto parameters_b, ParamFolder::Open(b));
  ParityComparison comparison;
  const std::string first =
      FirstDifference(steps_a, steps_b, CompareParams(gradients_a, gradients_b),
                      CompareParams(parameters_a, parameters_b));
  if (first.empty()) return comparison;
  if (steps_a.empty() || steps_b.empty()) {
    return absl::DataLossError(absl::StrCat(a, " or ", b, " logged no step"));
  }
  const double loss = RelativeTo(std::fabs(steps_a[0].loss - steps_b[0].loss),
                                 std::fabs(steps_b[0].loss));
  ASSIGN_OR_RETURN(const auto gradients, WorstTensor(gradients_a, gradients_b));
  if (loss <= bounds.loss && gradients.first <= bounds.gradients) {
    comparison.verdict = ParityVerdict::kWithinBounds;
    comparison.detail = absl::StrFormat("loss %.1e, gradient %.1e (%s)", loss,
                                        gradients.first, gradients.second);
    return comparison;
  }
  comparison.verdict = ParityVerdict::kDifferent;
  comparison.detail = first;
  return comparison;
}

}  // namespace weft::client
