#ifndef WEFT_BASE_VERSION_H_
#define WEFT_BASE_VERSION_H_

namespace weft {

// Of all binaries of this tree.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace weft

#endif  // WEFT_BASE_VERSION_H_
