#include "coordinator/core/heap.h"

#include <malloc.h>

#include <cstdint>

namespace weft::coordinator {
namespace {

// About a kilobyte each while it is compiled.
constexpr int64_t kLargePlanOps = 10000;

}  // namespace

void TrimHeapAfterPlan(int64_t ops) {
  if (ops >= kLargePlanOps) malloc_trim(0);
}

}  // namespace weft::coordinator
