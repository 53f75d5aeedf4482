// Versions of the libraries that ops compute with, as they are linked into this
// process, and the oldest that will do.
#ifndef WEFT_KERNELS_OPS_LIBRARIES_LIBRARIES_H_
#define WEFT_KERNELS_OPS_LIBRARIES_LIBRARIES_H_

#include "base/library_version.h"

namespace weft::ops {

LibraryVersion OneDnnVersion();

// In a build with CUDA.
LibraryVersion CublasVersion();
LibraryVersion CudnnVersion();

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_LIBRARIES_LIBRARIES_H_
