// Residency: where each bucket is gathered, released and reduced. The third
// decision of the compiler; it follows from readers, writers and a byte budget.
#ifndef WEFT_SCHEDULE_RESIDENCY_H_
#define WEFT_SCHEDULE_RESIDENCY_H_

#include <cstdint>
#include <vector>

#include "fsdp/unit/unit.h"
#include "model/declaration.h"
#include "schedule/order.h"

namespace weft::schedule {

// One stay of a gathered bucket. Positions index the order of node phases: the
// gather is launched before the phase at `gather`, the release after the one at
// `release`.
struct Stay {
  int bucket = 0;
  int gather = 0;
  int first_reader = 0;
  int release = 0;  // the last reader
};

// Stays of all buckets that are not resident, ordered by gather and then by
// first reader: the order in which gathers are launched.
//
// A bucket is gathered as early as the prefetch budget allows: at no position
// may the buckets that wait for their next reader exceed `prefetch_bytes`. When
// that is no later than its previous release, it stays instead. What is
// gathered once a step (see GatheredOnce) is gathered at the start and stays to
// its last reader.
std::vector<Stay> PlanStays(const std::vector<NodePhase>& order,
                            const model::ModelDecl& model,
                            const fsdp::UnitAssignment& units,
                            fsdp::Strategy strategy, int64_t prefetch_bytes);

// The bytes of the two largest units: the default of both budgets.
int64_t TwoLargestUnits(const fsdp::UnitAssignment& units);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_RESIDENCY_H_
