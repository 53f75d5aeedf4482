// What this process holds, as it tells the coordinator.
#ifndef WEFT_WORKER_SERVICE_PROCESS_FIGURES_H_
#define WEFT_WORKER_SERVICE_PROCESS_FIGURES_H_

#include <cstdint>

#include "weft/v1/cluster_service.pb.h"

namespace weft::service {

// As ReadProcessStats(). `device_bytes` is passed through.
v1::ProcessFigures ReadProcessFigures(int64_t device_bytes);

// Gives free heap memory back to the system, so that what a job used does not
// stay in the resident set.
void ReturnFreeMemory();

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_PROCESS_FIGURES_H_
