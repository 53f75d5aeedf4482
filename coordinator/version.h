#ifndef WEFT_COORDINATOR_VERSION_H_
#define WEFT_COORDINATOR_VERSION_H_

namespace weft::coordinator {

// Version of the coordinator.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_VERSION_H_
