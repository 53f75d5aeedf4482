#include <dnnl.h>

#include "kernels/ops/libraries/libraries.h"

namespace weft::ops {

LibraryVersion OneDnnVersion() {
  const dnnl_version_t& version = *dnnl_version();
  return {"oneDNN", {version.major, version.minor, version.patch}, {2, 6, 0}};
}

}  // namespace weft::ops
