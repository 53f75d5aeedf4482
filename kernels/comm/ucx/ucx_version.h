// The version of UCX that is linked into this process.
#ifndef WEFT_KERNELS_COMM_UCX_UCX_VERSION_H_
#define WEFT_KERNELS_COMM_UCX_UCX_VERSION_H_

#include "base/library_version.h"

namespace weft::comm {

LibraryVersion UcxVersion();

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_UCX_UCX_VERSION_H_
