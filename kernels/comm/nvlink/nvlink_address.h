// The address of a rank's NVLink transport, as text.
#ifndef WEFT_KERNELS_COMM_NVLINK_NVLINK_ADDRESS_H_
#define WEFT_KERNELS_COMM_NVLINK_NVLINK_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::comm::nvlink {

struct Address {
  std::string stream;
  int rank = 0;
  int world = 1;
  std::string host;   // what no other host, and no earlier boot, has
  std::string place;  // of the shared region
};

// What this host has: the identity of its boot.
absl::StatusOr<std::string> HostIdentity();

std::string FormatAddress(const Address& address);

// The place of the region. INVALID_ARGUMENT, saying where they differ, unless
// `text` is an address that is like `expected` in all but the place.
absl::StatusOr<std::string> ParsePlace(absl::string_view text,
                                       const Address& expected);

}  // namespace weft::comm::nvlink

#endif  // WEFT_KERNELS_COMM_NVLINK_NVLINK_ADDRESS_H_
