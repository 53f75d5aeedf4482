// Under which address a server of this machine is found by others.
#ifndef WEFT_BASE_ADVERTISED_ADDRESS_H_
#define WEFT_BASE_ADVERTISED_ADDRESS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace weft {

// The address that a server which listens on `listening` (HOST:PORT) tells
// others. It is `listening` itself, but where that means all addresses of the
// machine (0.0.0.0, [::]), the host is the first of them that leaves the
// machine, IPv4 before IPv6: in a pod, the pod's own. Without such a one it is
// 127.0.0.1.
std::string AdvertisedAddress(absl::string_view listening);

}  // namespace weft

#endif  // WEFT_BASE_ADVERTISED_ADDRESS_H_
