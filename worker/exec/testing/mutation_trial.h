// Mutants of a program before the verifier, and what those do that run.
#ifndef WEFT_WORKER_EXEC_TESTING_MUTATION_TRIAL_H_
#define WEFT_WORKER_EXEC_TESTING_MUTATION_TRIAL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "schedule/plan.h"
#include "schedule/testing/mutants.h"
#include "weft/v1/job.pb.h"

namespace weft::exec::testing {

// A random sample of the mutants that it is offered.
class MutantSample {
 public:
  explicit MutantSample(size_t size) : size_(size) {}

  void Offer(const schedule::Mutant& mutant);
  int64_t offered() const { return offered_; }
  const std::vector<schedule::Mutant>& kept() const { return kept_; }

 private:
  size_t size_;
  std::mt19937_64 random_{20261130};
  int64_t offered_ = 0;
  std::vector<schedule::Mutant> kept_;
};

// What became of the mutants of one class.
struct MutantTally {
  int64_t equivalent = 0;  // accepted, and run as the program itself does
  MutantSample accepted;   // the others
  MutantSample rejected;
  int harmful_accepted = 0;
  int harmful_rejected = 0;
};

struct MutationTrial {
  v1::TrainingJob job;
  // The job's plan; its training program is mutated.
  const schedule::Plan* plan = nullptr;
  // Share of all mutants that go before the verifier.
  double share = 1;
  // Mutants of each class that run.
  size_t accepted_to_run = 0;
  size_t rejected_to_run = 0;
};

struct MutationReport {
  std::vector<MutantTally> classes;     // by schedule::MutantClass
  std::map<std::string, int> by_proof;  // rejected ones
  // Of the program itself, which does none, and of accepted mutants.
  std::vector<std::string> harms;

  // Rows of text, under a title.
  std::string ToText(absl::string_view title) const;
};

// Judges mutants and runs samples of the accepted and the rejected ones under
// random delays with dead memory poisoned, each in a process of its own. Harm
// is an error, a deadlock, a crash, or any other bit in losses, norms,
// gradients or weights than the program's own. Requires: the calling process
// has one thread.
MutationReport RunMutationTrial(const MutationTrial& trial);

}  // namespace weft::exec::testing

#endif  // WEFT_WORKER_EXEC_TESTING_MUTATION_TRIAL_H_
