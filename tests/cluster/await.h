// Polling with a deadline: how a test waits for what other processes do.
#ifndef WEFT_TESTS_CLUSTER_AWAIT_H_
#define WEFT_TESTS_CLUSTER_AWAIT_H_

#include <functional>

#include "absl/time/time.h"

namespace weft::testing {

// Asks every few milliseconds until `condition` holds; false after `timeout`.
bool Await(const std::function<bool()>& condition, absl::Duration timeout);

}  // namespace weft::testing

#endif  // WEFT_TESTS_CLUSTER_AWAIT_H_
