// Communication hides where the plan lets it, is measured to the nanosecond,
// and moves exactly the routed rows.
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/happens_before.h"
#include "worker/exec/testing/local_world.h"

namespace weft::exec {
namespace {

using schedule::HappensBefore;
using schedule::Op;
using schedule::OpKind;
using schedule::Program;
using schedule::StreamKind;
using testing::LocalWorld;
using testing::LocalWorldOptions;
using testing::MakeJob;
using testing::SyntheticSamples;
using testing::TinyJob;

bool IsExchange(absl::string_view op) {
  return absl::StartsWith(op, "dispatch.") || absl::StartsWith(op, "combine.");
}

// By op of a program: for all-to-alls, how many ops of the compute stream the
// plan lets run before it has completed.
std::vector<int> ComputeOpsBeside(const schedule::Plan& plan,
                                  const Program& program) {
  const HappensBefore before(program);
  std::vector<int> allowed(program.ops.size(), 0);
  for (int id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    if (op.kind != OpKind::kNode || op.stream != StreamKind::kEp) continue;
    for (int other = 0; other < program.ops.size(); ++other) {
      const Op& compute = program.ops[other];
      if (compute.stream == StreamKind::kCompute && !before(id, other)) {
        // The optimizer follows the control op, which waits for everything.
        allowed[id] += compute.kind == OpKind::kNode;
      }
    }
  }
  return allowed;
}

// All-to-alls that have compute ops beside them: neither waits for the other.
int ExchangesBesideCompute(const Program& program) {
  const HappensBefore before(program);
  int count = 0;
  for (int id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    if (op.kind != OpKind::kNode || op.stream != StreamKind::kEp) continue;
    count += std::any_of(program.ops.begin(), program.ops.end(),
                         [&](const Op& compute) {
                           const int other = &compute - program.ops.data();
                           return compute.kind == OpKind::kNode &&
                                  compute.stream == StreamKind::kCompute &&
                                  !before(id, other) && !before(other, id);
                         });
  }
  return count;
}

// Holds every all-to-all of a rank back until all compute ops that the plan
// allows beside it have finished.
class Holder {
 public:
  Holder(int ranks, absl::Duration patience)
      : finished_(ranks), patience_(patience) {}

  // Call before the step: work finished so far does not count.
  void Begin(std::vector<int> allowed) {
    MutexLock lock(&mu_);
    allowed_ = std::move(allowed);
    finished_.assign(finished_.size(), 0);
  }

  void Finished(int rank, absl::string_view stream) {
    if (stream != "compute") return;
    MutexLock lock(&mu_);
    ++finished_[rank];
    progress_.SignalAll();
  }

  absl::Status Hold(absl::string_view group, const comm::CollectiveTag& tag,
                    int rank) {
    if (!IsExchange(tag.op)) return absl::OkStatus();
    const auto deadline = DeadlineAfter(patience_);
    MutexLock lock(&mu_);
    const int wanted = allowed_[tag.op_index];
    while (finished_[rank] < wanted) {
      if (!progress_.WaitUntil(&mu_, deadline)) {
        return absl::DeadlineExceededError(absl::StrCat(
            "held back at ", finished_[rank], " of ", wanted, " compute ops"));
      }
    }
    return absl::OkStatus();
  }

 private:
  Mutex mu_;
  CondVar progress_;
  std::vector<int> allowed_ ABSL_GUARDED_BY(mu_);
  std::vector<int> finished_ ABSL_GUARDED_BY(mu_);  // by rank
  const absl::Duration patience_;
};

struct HeldRun {
  absl::Status status;
  int beside_compute = 0;  // all-to-alls of one rank
};

HeldRun RunHeld(const TinyJob& tiny, absl::Duration patience,
                std::function<void(Program&)> edit) {
  Holder holder(tiny.world, patience);
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  options.edit = std::move(edit);
  options.interceptor = [&](absl::string_view group,
                            const comm::CollectiveTag& tag,
                            int rank) { return holder.Hold(group, tag, rank); };
  options.finished = [&](int rank, absl::string_view stream) {
    holder.Finished(rank, stream);
  };
  const auto plan = schedule::Compile(options.job);
  if (!plan.ok()) return {plan.status()};
  auto world = LocalWorld::Create(std::move(options));
  if (!world.ok()) return {world.status()};
  holder.Begin(ComputeOpsBeside(*plan, plan->train));
  HeldRun run;
  run.status = (*world)->RunSteps(1).status();
  run.beside_compute = ExchangesBesideCompute(plan->train);
  return run;
}

TinyJob WovenJob() {
  TinyJob tiny;
  tiny.world = 2;
  tiny.ep = 2;
  tiny.microbatches = 3;
  tiny.delay_wgrad = true;
  return tiny;
}

TEST(HeldBackTest, StepCompletesWhenAllToAllsWaitForTheComputeBesideThem) {
  const TinyJob tiny = WovenJob();
  const HeldRun run = RunHeld(tiny, absl::Seconds(60), nullptr);
  EXPECT_OK(run.status);
  // The woven pairs: two MoE layers, two all-to-alls each way, two pairs.
  EXPECT_GE(run.beside_compute, 2 * 4 * 2);
}

// Makes a compute op that runs beside an all-to-all wait for it.
void AddEdge(Program& program) {
  const HappensBefore before(program);
  for (int id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    if (op.kind != OpKind::kNode || op.stream != StreamKind::kEp) continue;
    if (op.phase != model::Phase::kDgrad || op.microbatch != 1) continue;
    for (int other = id + 1; other < program.ops.size(); ++other) {
      Op& compute = program.ops[other];
      if (compute.kind != OpKind::kNode) continue;
      if (compute.stream != StreamKind::kCompute) continue;
      if (before(id, other)) break;
      compute.waits.push_back(id);
      return;
    }
  }
  FAIL() << "no all-to-all has compute beside it";
}

TEST(HeldBackTest, AnAddedEdgeMakesTheStepTimeOut) {
  const HeldRun run = RunHeld(WovenJob(), absl::Seconds(1), &AddEdge);
  EXPECT_THAT(run.status, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                   ::testing::HasSubstr("held back")));
}

// Seconds of exposed all-to-all on rank 0 when each of its all-to-alls `op`
// takes `delay`.
absl::StatusOr<double> ExposedSeconds(TinyJob tiny, absl::string_view op,
                                      absl::Duration delay) {
  std::vector<FakeClock> clocks(tiny.world);
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  for (FakeClock& clock : clocks) options.clocks.push_back(&clock);
  options.interceptor = [&](absl::string_view, const comm::CollectiveTag& tag,
                            int rank) {
    if (tag.op == op) clocks[rank].Advance(delay);
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(auto world, LocalWorld::Create(std::move(options)));
  ASSIGN_OR_RETURN(auto results, world->RunSteps(1));
  const v1::StepMetrics& metrics = results[0][0].metrics;
  EXPECT_EQ(metrics.ep_seconds(), metrics.ep_exposed_seconds());
  return metrics.ep_exposed_seconds();
}

TEST(ExposureTest, SlowedTransportIsExposedToTheNanosecondInSequentialOrder) {
  TinyJob tiny;
  tiny.world = 2;
  tiny.ep = 2;
  tiny.microbatches = 2;
  tiny.combined = false;
  tiny.shared_expert = false;  // it may run beside a dispatch in any order
  EXPECT_THAT(ExposedSeconds(tiny, "dispatch.forward", absl::ZeroDuration()),
              IsOkAndHolds(0));
  // Two MoE layers, two microbatches; an exchange is two collectives.
  EXPECT_THAT(ExposedSeconds(tiny, "dispatch.forward", absl::Milliseconds(7)),
              IsOkAndHolds(::testing::DoubleEq(2 * 2 * 2 * 7e-3)));
  EXPECT_THAT(ExposedSeconds(tiny, "combine.forward", absl::Nanoseconds(1)),
              IsOkAndHolds(::testing::DoubleEq(2 * 2 * 1e-9)));
}

// Bytes all ranks sent in the all-to-alls of one step.
absl::StatusOr<int64_t> WireBytes(TinyJob tiny, SyntheticSamples::Kind kind) {
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  options.samples = kind;
  ASSIGN_OR_RETURN(auto world, LocalWorld::Create(std::move(options)));
  ASSIGN_OR_RETURN(auto results, world->RunSteps(1));
  int64_t bytes = 0;
  for (const auto& rank : results) bytes += rank[0].metrics.ep_wire_bytes();
  return bytes;
}

TEST(WireBytesTest, AreTheRowsRoutedToOtherRanks) {
  TinyJob tiny;
  tiny.world = 2;
  tiny.ep = 2;
  tiny.experts = 2;  // with top-2, half of all rows leave their rank
  tiny.microbatches = 2;
  const int64_t moe_layers = 2;
  const int64_t tokens = tiny.sequence_length;
  const int64_t row = tiny.hidden * 4;
  // Rows there and back, forward and backward, and twice a probability.
  const int64_t row_bytes = 4 * row + 2 * 4;
  EXPECT_THAT(WireBytes(tiny, SyntheticSamples::Kind::kRule),
              IsOkAndHolds(2 * 2 * moe_layers * tokens * row_bytes));

  // One token everywhere: its two experts lie on two of the four ranks.
  tiny.world = 4;
  tiny.ep = 4;
  tiny.experts = 4;
  tiny.microbatches = 1;
  EXPECT_THAT(WireBytes(tiny, SyntheticSamples::Kind::kConstant),
              IsOkAndHolds(moe_layers * tokens * 2 * 3 * row_bytes));
}

}  // namespace
}  // namespace weft::exec
