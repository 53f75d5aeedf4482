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
  int slot = -1;    // where it lies, when there are slots; -1: anywhere
};

// What bounds gathered buckets of layers.
struct ResidencyBudget {
  // Bytes that may wait for their next reader while a phase of the forward
  // runs, and while one of the backward does.
  int64_t forward_bytes = 0;
  int64_t backward_bytes = 0;
  // Buckets that may be gathered at once, those that are read included; 0: any
  // number. At least as many as one phase reads.
  int slots = 0;
};

// Stays of all buckets that are not resident, ordered by gather and then by
// first reader: the order in which gathers are launched.
//
// A bucket is gathered as early as the budget allows at every position from
// there to its reader. When that is no later than its previous release, it
// stays instead. What is gathered once a step (see GatheredOnce) is gathered at
// the start, stays to its last reader and does not count. With slots, two stays
// that overlap have different ones, and a stay takes the one that has been free
// longest.
std::vector<Stay> PlanStays(const std::vector<NodePhase>& order,
                            const model::ModelDecl& model,
                            const fsdp::UnitAssignment& units,
                            fsdp::Strategy strategy,
                            const ResidencyBudget& budget);

// The bytes of the two largest units, in weights or in gradients: the default
// of a budget.
int64_t TwoLargestUnits(const fsdp::UnitAssignment& units,
                        int64_t (fsdp::Bucket::*bytes)() const);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_RESIDENCY_H_
