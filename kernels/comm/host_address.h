// The address of a rank's transport that connects ranks of one host, as text.
#ifndef WEFT_KERNELS_COMM_HOST_ADDRESS_H_
#define WEFT_KERNELS_COMM_HOST_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::comm {

struct HostAddress {
  std::string transport;  // its kind: "nvlink"
  std::string stream;
  int rank = 0;
  int world = 1;
  std::string host;   // HostIdentity()
  std::string place;  // of the rank's shared region
};

// What processes have that can open each other's memory: the identity of this
// host's boot, and of the namespace that numbers its processes.
absl::StatusOr<std::string> HostIdentity();

std::string FormatAddress(const HostAddress& address);

// The place of the region. INVALID_ARGUMENT, saying where they differ, unless
// `text` is an address that is like `expected` in all but the place.
absl::StatusOr<std::string> ParsePlace(absl::string_view text,
                                       const HostAddress& expected);

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_HOST_ADDRESS_H_
