// Where the coordinator is.
#ifndef WEFT_CLIENT_ADDRESS_H_
#define WEFT_CLIENT_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::client {

// The variable and the file that name a coordinator.
inline constexpr char kCoordinatorVariable[] = "WEFT_COORDINATOR";
inline constexpr char kCoordinatorFile[] = ".weft/coordinator";

// The address to call: `flag` if not empty, else the environment variable, else
// the first line of the file in `folder` or the nearest folder above it, where
// `./weft up` leaves it. FAILED_PRECONDITION, saying how to name one, when
// there is none; INVALID_ARGUMENT when a file of that name can hold none.
absl::StatusOr<std::string> FindCoordinator(absl::string_view flag,
                                            const std::string& folder);

}  // namespace weft::client

#endif  // WEFT_CLIENT_ADDRESS_H_
