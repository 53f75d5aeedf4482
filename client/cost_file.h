// Cost tables as files: JSON.
//
//   {"format": "weft.costs.v2",
//    "wait_seconds": 2e-05,    // for a stream that idled to wake
//    "step_seconds": 0.0004,   // of a step outside its ops
//    "sharing": {"cores": 1.8,        // of a host, for all ranks; 0: no bound
//                "crowding": 0.1},    // slowdown by each further stream
//    "ops": {"experts.forward": {"fixed": 1e-05, "per_flop": 2e-11,
//                                "per_attention_flop": 0, "per_byte": 0,
//                                "per_wire_byte": 0, "per_peer": 0}, ...}}
//
// Numbers of ops are seconds; schedule/op_cost.h says what they multiply, and
// what sharing is.
#ifndef WEFT_CLIENT_COST_FILE_H_
#define WEFT_CLIENT_COST_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "schedule/op_cost.h"

namespace weft::client {

// INVALID_ARGUMENT, naming the file and the field, for what is missing, unknown
// or no number of at least 0; else as ReadJsonFile.
absl::StatusOr<schedule::CostTable> ReadCosts(const std::string& path);

absl::Status WriteCosts(const schedule::CostTable& costs,
                        const std::string& path);

}  // namespace weft::client

#endif  // WEFT_CLIENT_COST_FILE_H_
