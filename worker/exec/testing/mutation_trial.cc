#include "worker/exec/testing/mutation_trial.h"

#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "schedule/verifier.h"
#include "worker/exec/testing/delayed_run.h"

namespace weft::exec::testing {
namespace {

using schedule::Mutant;
using schedule::MutantClass;

std::string ToText(const RunBits& bits) {
  std::string text = absl::StrCat(bits.weights);
  for (uint64_t step : bits.steps) absl::StrAppend(&text, " ", step);
  return text;
}

std::optional<RunBits> FromText(const std::string& text) {
  RunBits bits;
  for (const auto word : absl::StrSplit(text, ' ')) {
    if (!absl::SimpleAtoi(word, &bits.steps.emplace_back())) return {};
  }
  bits.weights = bits.steps.front();
  bits.steps.erase(bits.steps.begin());
  return bits;
}

// The proof that a message of the verifier names.
std::string ProofOf(const absl::Status& status) {
  const std::vector<std::string> parts = absl::StrSplit(status.message(), ": ");
  return parts.size() > 1 ? parts[1] : std::string(status.message());
}

void Judge(const MutationTrial& trial, MutationReport& report) {
  const schedule::Plan& plan = *trial.plan;
  const std::string own = schedule::ExecutionSignature(plan.train);
  std::mt19937_64 random(20261130);
  const auto chosen = [&] {
    return static_cast<double>(random() >> 11) * 0x1p-53 < trial.share;
  };
  schedule::ForEachMutant(
      plan.train, plan.model, plan.units, chosen, [&](const Mutant& mutant) {
        MutantTally& tally = report.classes[static_cast<int>(mutant.kind)];
        const absl::Status verdict =
            schedule::VerifyProgram(mutant.program, plan.model, plan.units);
        if (!verdict.ok()) {
          ++report.by_proof[ProofOf(verdict)];
          tally.rejected.Offer(mutant);
        } else if (schedule::ExecutionSignature(mutant.program) == own) {
          ++tally.equivalent;
        } else {
          tally.accepted.Offer(mutant);
        }
      });
}

// Runs programs in processes of their own: the caller's stays without threads.
class Runner {
 public:
  explicit Runner(const v1::TrainingJob& job) { run_.job = job; }

  // Runs the program itself; empty when all is well.
  std::string FindBits(const schedule::Program& program) {
    const std::string text = InOwnProcess([&]() -> std::string {
      const auto bits = RunUndelayed(run_.job, run_.seeds);
      return bits.ok() ? ToText(*bits) : std::string(bits.status().message());
    });
    const std::optional<RunBits> bits = FromText(text);
    if (!bits.has_value()) return text;
    bits_ = *bits;
    return HarmOf(program);
  }

  std::string HarmOf(const schedule::Program& program) {
    run_.program = &program;
    return InOwnProcess([&] { return testing::HarmOf(run_, bits_); });
  }

 private:
  DelayedRun run_;
  RunBits bits_;
};

}  // namespace

void MutantSample::Offer(const Mutant& mutant) {
  ++offered_;
  if (kept_.size() < size_) {
    kept_.push_back(mutant);
  } else if (const size_t at = random_() % offered_; at < size_) {
    kept_[at] = mutant;
  }
}

MutationReport RunMutationTrial(const MutationTrial& trial) {
  MutationReport report;
  for (int i = 0; i < schedule::kNumMutantClasses; ++i) {
    report.classes.push_back({0, MutantSample(trial.accepted_to_run),
                              MutantSample(trial.rejected_to_run), 0, 0});
  }
  Judge(trial, report);
  Runner runner(trial.job);
  const std::string own = runner.FindBits(trial.plan->train);
  if (!own.empty()) {
    report.harms.push_back("the program itself: " + own);
    return report;
  }
  for (MutantTally& tally : report.classes) {
    for (const Mutant& mutant : tally.accepted.kept()) {
      const std::string harm = runner.HarmOf(mutant.program);
      if (harm.empty()) continue;
      ++tally.harmful_accepted;
      report.harms.push_back(
          absl::StrCat(Name(mutant.kind), ", ", mutant.what, ": ", harm));
    }
    for (const Mutant& mutant : tally.rejected.kept()) {
      tally.harmful_rejected += !runner.HarmOf(mutant.program).empty();
    }
  }
  return report;
}

std::string MutationReport::ToText(absl::string_view title) const {
  std::string text = absl::StrFormat(
      "%s:\n  %-20s %8s %8s %10s %8s %14s %14s\n", title, "class", "mutants",
      "killed", "equivalent", "accepted", "accepted harm", "killed harm");
  for (int i = 0; i < classes.size(); ++i) {
    const MutantTally& t = classes[i];
    const int64_t killed = t.rejected.offered();
    const int64_t accepted = t.accepted.offered();
    absl::StrAppendFormat(
        &text, "  %-20s %8d %8d %10d %8d %6d of %4d %6d of %4d\n",
        Name(static_cast<MutantClass>(i)), killed + t.equivalent + accepted,
        killed, t.equivalent, accepted, t.harmful_accepted,
        t.accepted.kept().size(), t.harmful_rejected, t.rejected.kept().size());
  }
  absl::StrAppend(&text, "  killed by proof:");
  for (const auto& [proof, count] : by_proof) {
    absl::StrAppend(&text, " ", proof, " ", count);
  }
  return absl::StrCat(text, "\n");
}

}  // namespace weft::exec::testing
