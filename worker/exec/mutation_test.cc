// Mutation test of the verifier: what it accepts does no harm.
//
// Every mutant of some small programs goes through the verifier. Those that it
// accepts, and some that it rejects, run under random delays with dead memory
// poisoned, each in a process of its own; harm is an error, a deadlock, a crash
// or any other bit in losses, norms, gradients or weights than the program's
// own. An accepted mutant that does harm is a hole in the verifier.
//
// WEFT_MUTANTS says how many accepted and how many rejected mutants of a class
// run for each program; 0 runs all that are accepted, and 20 that are rejected.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "schedule/plan.h"
#include "schedule/testing/mutants.h"
#include "schedule/verifier.h"
#include "worker/exec/testing/delayed_run.h"
#include "worker/exec/testing/tiny_job.h"

namespace weft::exec {
namespace {

using schedule::kNumMutantClasses;
using schedule::Mutant;
using schedule::MutantClass;
using testing::DelayedRun;
using testing::RunBits;
using testing::TinyJob;

// Sanitizers take long over the proofs: they get fewer programs and mutants.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
constexpr int kDefaultSample = 1;
#else
constexpr bool kSanitized = false;
constexpr int kDefaultSample = 3;
#endif

// Mutants of each class to run: accepted and rejected ones.
std::pair<int, int> SampleSizes() {
  const char* text = std::getenv("WEFT_MUTANTS");
  int sample = kDefaultSample;
  if (text != nullptr) {
    EXPECT_TRUE(absl::SimpleAtoi(text, &sample)) << "WEFT_MUTANTS=" << text;
  }
  return sample > 0 ? std::pair(sample, sample) : std::pair(1 << 30, 20);
}

// A random sample of what it is offered.
class Sample {
 public:
  explicit Sample(size_t size) : size_(size) {}

  void Offer(const Mutant& mutant) {
    ++offered_;
    if (kept_.size() < size_) {
      kept_.push_back(mutant);
    } else if (const size_t at = random_() % offered_; at < size_) {
      kept_[at] = mutant;
    }
  }
  int64_t offered() const { return offered_; }
  const std::vector<Mutant>& kept() const { return kept_; }

 private:
  const size_t size_;
  std::mt19937_64 random_{20261130};
  int64_t offered_ = 0;
  std::vector<Mutant> kept_;
};

// What became of the mutants of one class.
struct Tally {
  Tally() : accepted(SampleSizes().first), rejected(SampleSizes().second) {}

  int64_t equivalent = 0;  // accepted, and run as the program itself does
  Sample accepted;         // the others
  Sample rejected;
  int harmful_accepted = 0;
  int harmful_rejected = 0;
};

using Tallies = std::array<Tally, kNumMutantClasses>;

std::string ToText(const RunBits& bits) {
  std::string text = absl::StrCat(bits.weights);
  for (uint64_t step : bits.steps) absl::StrAppend(&text, " ", step);
  return text;
}

// The bits of the program itself, from a process of its own: this one stays
// without threads.
RunBits Reference(const DelayedRun& run) {
  const std::string text = testing::InOwnProcess([&]() -> std::string {
    const auto bits = testing::RunUndelayed(run.job, run.seeds);
    return bits.ok() ? ToText(*bits) : std::string(bits.status().message());
  });
  RunBits bits;
  for (const auto word : absl::StrSplit(text, ' ')) {
    uint64_t number = 0;
    if (!absl::SimpleAtoi(word, &number)) ADD_FAILURE() << text;
    bits.steps.push_back(number);
  }
  bits.weights = bits.steps.front();
  bits.steps.erase(bits.steps.begin());
  return bits;
}

std::string HarmInOwnProcess(const DelayedRun& run, const RunBits& expected) {
  return testing::InOwnProcess([&] { return testing::HarmOf(run, expected); });
}

// The proof that a message of the verifier names.
std::string ProofOf(const absl::Status& status) {
  const std::vector<std::string> parts = absl::StrSplit(status.message(), ": ");
  return parts.size() > 1 ? parts[1] : std::string(status.message());
}

struct Case {
  const char* name;
  TinyJob job;
  // No two values share memory: only what a proof says of order keeps ops in
  // order.
  bool spread_out = false;
};

class MutationTest : public ::testing::TestWithParam<Case> {
 protected:
  // Puts every mutant before the verifier.
  void Judge(const schedule::Plan& plan) {
    const std::string own = schedule::ExecutionSignature(plan.train);
    schedule::ForEachMutant(
        plan.train, plan.model, plan.units, [&](const Mutant& mutant) {
          Tally& tally = tallies_[static_cast<int>(mutant.kind)];
          const absl::Status verdict =
              schedule::VerifyProgram(mutant.program, plan.model, plan.units);
          if (!verdict.ok()) {
            ++by_proof_[ProofOf(verdict)];
            tally.rejected.Offer(mutant);
          } else if (schedule::ExecutionSignature(mutant.program) == own) {
            ++tally.equivalent;
          } else {
            tally.accepted.Offer(mutant);
          }
        });
  }

  void RunSamples(DelayedRun run) {
    const RunBits expected = Reference(run);
    ASSERT_EQ(HarmInOwnProcess(run, expected), "") << "of the program itself";
    for (Tally& tally : tallies_) {
      for (const Mutant& mutant : tally.accepted.kept()) {
        run.program = &mutant.program;
        const std::string harm = HarmInOwnProcess(run, expected);
        tally.harmful_accepted += !harm.empty();
        EXPECT_EQ(harm, "")
            << "accepted " << Name(mutant.kind) << ", " << mutant.what;
      }
      for (const Mutant& mutant : tally.rejected.kept()) {
        run.program = &mutant.program;
        tally.harmful_rejected += !HarmInOwnProcess(run, expected).empty();
      }
    }
  }

  void Report(int ops) const {
    std::cout << GetParam().name << ", " << ops << " ops:\n"
              << absl::StrFormat("  %-20s %8s %8s %10s %8s %15s %15s\n",
                                 "class", "mutants", "killed", "equivalent",
                                 "accepted", "accepted harm", "killed harm");
    for (int i = 0; i < kNumMutantClasses; ++i) {
      const Tally& t = tallies_[i];
      const char* name = Name(static_cast<MutantClass>(i));
      const int64_t killed = t.rejected.offered();
      const int64_t accepted = t.accepted.offered();
      std::cout << absl::StrFormat(
          "  %-20s %8d %8d %10d %8d %8d of %4d %8d of %4d\n", name,
          killed + t.equivalent + accepted, killed, t.equivalent, accepted,
          t.harmful_accepted, t.accepted.kept().size(), t.harmful_rejected,
          t.rejected.kept().size());
      ::testing::Test::RecordProperty(absl::StrCat("killed_", name),
                                      absl::StrCat(killed));
      ::testing::Test::RecordProperty(absl::StrCat("accepted_", name),
                                      absl::StrCat(accepted));
    }
    std::cout << "  killed by proof:";
    for (const auto& [proof, count] : by_proof_) {
      std::cout << " " << proof << " " << count;
    }
    std::cout << std::endl;
  }

  Tallies tallies_;
  std::map<std::string, int> by_proof_;
};

TEST_P(MutationTest, EveryHarmfulMutantIsRejected) {
  DelayedRun run;
  run.job = testing::MakeJob(GetParam().job);
  ASSERT_OK_AND_ASSIGN(schedule::Plan plan, schedule::Compile(run.job));
  if (GetParam().spread_out) schedule::SpreadOut(plan.train);
  Judge(plan);
  RunSamples(run);
  Report(plan.train.ops.size());
  int harmful_rejected = 0;
  for (const Tally& tally : tallies_) {
    EXPECT_GT(tally.rejected.offered(), 0);
    harmful_rejected += tally.harmful_rejected;
  }
  // The oracle does see harm.
  EXPECT_GT(harmful_rejected, 0);
}

std::vector<Case> Cases() {
  TinyJob small;
  small.world = 2;
  small.ep = 2;
  small.layers = 1;
  small.dense_layers = 0;
  small.shared_expert = false;

  TinyJob no_shard = small;
  no_shard.combined = false;
  no_shard.microbatches = 3;
  no_shard.strategy = v1::SHARDING_STRATEGY_NO_SHARD;
  TinyJob tied = small;
  tied.microbatches = 3;
  tied.tied = true;
  tied.strategy = v1::SHARDING_STRATEGY_OPTIM;
  TinyJob grads = small;
  grads.world = 4;
  grads.microbatches = 2;
  grads.delay_wgrad = true;
  grads.strategy = v1::SHARDING_STRATEGY_OPTIM_GRADS;
  TinyJob sequential = small;
  sequential.ep = 1;
  sequential.combined = false;
  sequential.delay_wgrad = true;
  sequential.microbatches = 2;
  TinyJob woven = small;
  woven.world = 4;
  woven.layers = 2;
  woven.dense_layers = 1;
  woven.microbatches = 2;
  woven.delay_wgrad = true;
  if (kSanitized) return {{"CombinedTiedOptim", tied}};
  return {{"SequentialNoShard", no_shard},
          {"SequentialNoShardSpreadOut", no_shard, /*spread_out=*/true},
          {"CombinedTiedOptim", tied},
          {"CombinedDelayedOptimGrads", grads},
          {"SequentialDelayedOptimGradsParams", sequential},
          {"CombinedDelayedOptimGradsParams", woven}};
}

INSTANTIATE_TEST_SUITE_P(Programs, MutationTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace weft::exec
