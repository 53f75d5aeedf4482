// Room for thread-local storage on the stacks of threads that libraries start.
//
// glibc takes the thread-local storage of all libraries a binary links out of
// the stack of each thread. That of cuBLAS is 94 KiB, and civetweb asks for
// stacks of 100 KiB: its threads could not be created. This definition stands
// in for glibc's, in libraries too.
#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <cstddef>

extern "C" int pthread_attr_setstacksize(pthread_attr_t* attributes,
                                         size_t bytes) noexcept {
  using SetStackSize = int (*)(pthread_attr_t*, size_t);
  static const auto next = reinterpret_cast<SetStackSize>(
      dlsym(RTLD_NEXT, "pthread_attr_setstacksize"));
  constexpr size_t kLeast = size_t{1} << 20;
  return next(attributes, std::max(bytes, kLeast));
}
