// From what every rank reports of a step to what the job's step showed.
#ifndef WEFT_COORDINATOR_CORE_STEP_AGGREGATOR_H_
#define WEFT_COORDINATOR_CORE_STEP_AGGREGATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {

// Collects reports by step. Each rank reports its steps in order, each once.
// Reports of some ranks may run ahead of others' by any number of steps: the
// ranks themselves cannot, but what each sends comes by a stream of its own.
// Not thread-safe.
class StepAggregator {
 public:
  explicit StepAggregator(int world) : next_step_(world, 1) {}

  // Takes the report of one rank. Returns the metrics of the step when it was
  // the last one missing. INVALID_ARGUMENT when the step is not the rank's
  // next; INTERNAL, naming the ranks, when ranks
  // disagree about what is global.
  absl::StatusOr<std::optional<v1::StepMetrics>> Add(
      int rank, const v1::StepMetrics& metrics);

 private:
  struct Reports {
    int count = 0;
    std::vector<v1::StepMetrics> by_rank;
  };

  std::vector<int64_t> next_step_;  // by rank
  std::map<int64_t, Reports> pending_;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_STEP_AGGREGATOR_H_
