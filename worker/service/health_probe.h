// Asks the standard gRPC health service, as the kubelet does. For tests.
#ifndef WEFT_WORKER_SERVICE_HEALTH_PROBE_H_
#define WEFT_WORKER_SERVICE_HEALTH_PROBE_H_

#include <string>

#include "absl/time/time.h"

namespace weft::service {

// What `address` answers of `service`: SERVING, NOT_SERVING or NOT_FOUND; for
// anything else the call's error.
std::string Probe(const std::string& address, const std::string& service);

// The last answer: `wanted`, or what it was when the time was over.
std::string AwaitProbe(const std::string& address, const std::string& service,
                       const std::string& wanted,
                       absl::Duration timeout = absl::Seconds(30));

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_HEALTH_PROBE_H_
