// Whether a sanitizer watches this test, which then takes many times as long.
//
// A macro cannot tell: the build with ThreadSanitizer undefines it for the sake
// of protobuf's headers. Both test configurations of .bazelrc set the options
// of their sanitizer.
#ifndef WEFT_BASE_SANITIZED_H_
#define WEFT_BASE_SANITIZED_H_

#include <cstdlib>

namespace weft {

inline bool IsSanitized() {
  return std::getenv("ASAN_OPTIONS") != nullptr ||
         std::getenv("TSAN_OPTIONS") != nullptr;
}

}  // namespace weft

#endif  // WEFT_BASE_SANITIZED_H_
