// What the values of the worker's flags must be.
#ifndef WEFT_WORKER_SERVICE_FLAG_RULES_H_
#define WEFT_WORKER_SERVICE_FLAG_RULES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft::service {

// INVALID_ARGUMENT, naming flag, value and rule, for a value that attaching
// would be refused with, again and again.

// HOST:PORT, the port from 1 on; an IPv6 address as a host stands in brackets.
absl::Status CheckCoordinator(absl::string_view coordinator);

// HOST:PORT to listen on, of the flag --`flag`; port 0 takes a free one.
absl::Status CheckListenAddress(absl::string_view flag,
                                absl::string_view address);

// What the coordinator takes as an id; empty is legal: it then makes one.
absl::Status CheckWorkerId(absl::string_view worker_id);

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_FLAG_RULES_H_
