// The account of runs of one job under many combinations: whose results are as
// equal as they must be.
#ifndef WEFT_CLIENT_PARITY_MATRIX_H_
#define WEFT_CLIENT_PARITY_MATRIX_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/parity.h"
#include "client/parity_compare.h"

namespace weft::client {

// What became of a run.
struct ParityRow {
  std::string combination;
  std::string sum_class;
  std::string result;  // "identical to run 1", "refused", "DIFFERENT", ...
  std::string detail;
};

// Runs whose results must be equal to the bit.
struct ParityClass {
  std::string name;
  int first_run = 0;  // of those that succeeded; 0: none did
  int generated = 0;
  int refused = 0;
  int executed = 0;
  int identical = 0;  // to the first
};

// Why runs were refused.
struct ParityRefusal {
  std::string reason;
  int runs = 0;
};

// Takes what becomes of each run, in their order; runs count from 1. A run that
// is the first of its class is compared with the first of its objective, within
// bounds, and each other with the first of its class, to the bit.
class ParityMatrix {
 public:
  void AddRefused(const ParityRun& run, const std::string& reason);
  void AddFailed(const ParityRun& run, const std::string& message);
  // `artifacts` is the folder of the job. Errors as CompareRuns.
  absl::Status AddExecuted(const ParityRun& run, const std::string& artifacts);

  const std::vector<ParityRow>& rows() const { return rows_; }
  // In order of their first appearance.
  const std::vector<ParityClass>& classes() const { return classes_; }
  const std::vector<ParityRefusal>& refusals() const { return refusals_; }

  // What was to be varied and was not: a schedule, delay or strategy with which
  // nothing ran; worlds, EP sizes or microbatches of which fewer than two did.
  std::vector<std::string> EmptyCells() const;

  int generated() const { return static_cast<int>(rows_.size()); }
  int refused() const;
  int executed() const { return executed_; }
  int failed() const { return failed_; }
  int identical() const { return identical_; }
  int within_bounds() const { return within_; }
  int different() const { return different_; }
  // How many runs began something that nothing before could be compared with.
  int objectives() const { return static_cast<int>(objectives_.size()); }

  // Whether something ran, nothing failed or differs, and no cell is empty.
  bool holds() const;
  // The counts, in a sentence.
  std::string Summary() const;

 private:
  // A run that others are compared with.
  struct Reference {
    int run = 0;
    std::string artifacts;
  };
  struct Cell {
    std::string value;  // "strategy=optim"
    int executed = 0;
  };

  // Counts the run and returns its row and its class.
  ParityRow& AddRow(const ParityRun& run, ParityClass** of);
  // What `comparison` with run `other` says; `leads`: the run is the first of
  // its class.
  void Judge(const ParityComparison& comparison, bool leads, int other,
             ParityClass* of, ParityRow* row);

  std::vector<ParityRow> rows_;
  std::vector<ParityClass> classes_;
  std::vector<ParityRefusal> refusals_;
  std::vector<Cell> cells_;
  std::map<std::string, Reference> leaders_;     // by class
  std::map<std::string, Reference> objectives_;  // by objective
  int executed_ = 0;
  int failed_ = 0;
  int identical_ = 0;
  int within_ = 0;
  int different_ = 0;
};

}  // namespace weft::client

#endif  // WEFT_CLIENT_PARITY_MATRIX_H_
