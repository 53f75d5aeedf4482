#include "worker/exec/testing/delayed_run.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/hash64.h"
#include "base/status_macros.h"
#include "worker/exec/testing/conductor.h"
#include "worker/exec/testing/local_world.h"

namespace weft::exec::testing {
namespace {

template <typename T>
uint64_t BitsOf(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

uint64_t BitsOfSteps(const std::vector<StepResult>& by_rank) {
  Hash64 hash;
  for (const StepResult& result : by_rank) {
    hash.AddInt(BitsOf(result.metrics.loss()));
    hash.AddInt(BitsOf(result.metrics.grad_norm()));
    hash.AddInt(BitsOf(result.metrics.objective()));
    for (const v1::RouterLoss& loss : result.metrics.router_losses()) {
      hash.AddInt(BitsOf(loss.value()));
    }
  }
  return hash.Get();
}

absl::StatusOr<uint64_t> BitsOfWeights(LocalWorld& world) {
  Hash64 hash;
  ASSIGN_OR_RETURN(const auto weights, world.Parameters());
  ASSIGN_OR_RETURN(const auto gradients, world.Gradients());
  for (const auto* tensors : {&weights, &gradients}) {
    for (const auto& [name, values] : *tensors) {
      hash.AddString(name);
      for (float value : values) hash.AddInt(BitsOf(value));
    }
  }
  return hash.Get();
}

// A world whose devices a conductor drives.
class ConductedWorld {
 public:
  static absl::StatusOr<std::unique_ptr<ConductedWorld>> Create(
      const DelayedRun& run) {
    auto conducted = std::make_unique<ConductedWorld>();
    Conductor& conductor = conducted->conductor_;
    LocalWorldOptions options;
    options.job = run.job;
    options.wrap_device = [&](std::unique_ptr<device::Device> device) {
      return conductor.Wrap(std::move(device));
    };
    const fsdp::World world = schedule::Declare(run.job).world;
    options.interceptor = [&conductor, world](absl::string_view group,
                                              const comm::CollectiveTag&,
                                              int rank) {
      // "gather.edp" and the like; "control" is over all ranks.
      const fsdp::Axis axis = absl::EndsWith(group, "edp")  ? fsdp::Axis::kEdp
                              : absl::EndsWith(group, "ep") ? fsdp::Axis::kEp
                                                            : fsdp::Axis::kDp;
      const std::vector<int> members = world.Members(axis, rank);
      conductor.AtCollective(absl::StrCat(group, " of ", members[0]),
                             members.size());
      return absl::OkStatus();
    };
    if (run.program != nullptr) {
      options.trust_edit = true;
      options.edit = [&](schedule::Program& program) {
        program = *run.program;
      };
    }
    ASSIGN_OR_RETURN(conducted->world_, LocalWorld::Create(std::move(options)));
    conductor.set_on_stuck([world = conducted->world_.get()] {
      world->Cancel(absl::AbortedError("all ranks wait for each other"));
    });
    return conducted;
  }

  // The bits of the next step.
  absl::StatusOr<uint64_t> RunStep(uint64_t seed) {
    conductor_.Reseed(seed);
    conductor_.HostsBegin(world_->size());
    std::vector<StepResult> results(world_->size());
    ++step_;
    const absl::Status status =
        world_->ForEachRank([&](int rank, Engine& engine) {
          const absl::Status ran = engine.RunStep(step_, 0, &results[rank]);
          conductor_.HostDone();
          return ran;
        });
    conductor_.HostsBegin(1);
    RETURN_IF_ERROR(status);
    return BitsOfSteps(results);
  }

  absl::StatusOr<uint64_t> Weights() { return BitsOfWeights(*world_); }

 private:
  Conductor conductor_{/*seed=*/0};
  std::unique_ptr<LocalWorld> world_;
  int64_t step_ = 0;
};

}  // namespace

absl::StatusOr<RunBits> RunDelayed(const DelayedRun& run) {
  ASSIGN_OR_RETURN(auto world, ConductedWorld::Create(run));
  RunBits bits;
  for (int seed = 0; seed < run.seeds; ++seed) {
    ASSIGN_OR_RETURN(bits.steps.emplace_back(), world->RunStep(seed));
  }
  ASSIGN_OR_RETURN(bits.weights, world->Weights());
  return bits;
}

std::string HarmOf(const DelayedRun& run, const RunBits& expected) {
  auto world = ConductedWorld::Create(run);
  if (!world.ok()) return std::string(world.status().message());
  for (int seed = 0; seed < run.seeds; ++seed) {
    const auto bits = (*world)->RunStep(seed);
    if (!bits.ok()) return std::string(bits.status().message());
    if (*bits != expected.steps[seed]) {
      return absl::StrCat("other losses or norms in step ", seed + 1);
    }
  }
  const auto weights = (*world)->Weights();
  if (!weights.ok()) return std::string(weights.status().message());
  return *weights == expected.weights ? "" : "other weights or gradients";
}

absl::StatusOr<RunBits> RunUndelayed(const v1::TrainingJob& job, int steps) {
  LocalWorldOptions options;
  options.job = job;
  ASSIGN_OR_RETURN(auto world, LocalWorld::Create(std::move(options)));
  RunBits bits;
  for (int step = 0; step < steps; ++step) {
    ASSIGN_OR_RETURN(const auto results, world->RunSteps(1));
    std::vector<StepResult> by_rank;
    for (const auto& of_rank : results) by_rank.push_back(of_rank[0]);
    bits.steps.push_back(BitsOfSteps(by_rank));
  }
  ASSIGN_OR_RETURN(bits.weights, BitsOfWeights(*world));
  return bits;
}

std::string InOwnProcess(const std::function<std::string()>& fn) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    const std::string result = fn();
    for (size_t written = 0; written < result.size();) {
      const ssize_t n =
          ::write(ends[1], result.data() + written, result.size() - written);
      if (n <= 0) ::_exit(1);
      written += n;
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string result;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof(buffer))) > 0;) {
    result.append(buffer, n);
  }
  ::close(ends[0]);
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return "no process";
  if (WIFSIGNALED(status)) {
    return absl::StrCat("died of signal ", WTERMSIG(status));
  }
  return WEXITSTATUS(status) == 0 ? result : "ended early";
}

}  // namespace weft::exec::testing
