// What every worker binary is; they differ in the kinds of devices they know.
#ifndef WEFT_WORKER_RUN_WORKER_H_
#define WEFT_WORKER_RUN_WORKER_H_

#include "absl/types/span.h"
#include "worker/service/backend.h"

namespace weft::service {

// The worker's main(), for flags that name a device of `known`. 0 when it ended
// as asked, 2 for flags that cannot work, 1 for any other error.
int RunWorker(int argc, char** argv, absl::Span<const Backend* const> known);

}  // namespace weft::service

#endif  // WEFT_WORKER_RUN_WORKER_H_
