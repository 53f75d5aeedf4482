// Memory that was freed and is not needed again soon.
#ifndef WEFT_COORDINATOR_CORE_HEAP_H_
#define WEFT_COORDINATOR_CORE_HEAP_H_

#include <cstdint>

namespace weft::coordinator {

// Gives the system back what a plan of `ops` ops took, after it was freed:
// left to itself, malloc keeps it. Does nothing for small plans. Takes some
// milliseconds. Thread-safe.
void TrimHeapAfterPlan(int64_t ops);

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_HEAP_H_
