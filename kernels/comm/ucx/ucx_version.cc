#include "kernels/comm/ucx/ucx_version.h"

#include <ucp/api/ucp.h>

namespace weft::comm {

LibraryVersion UcxVersion() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&major, &minor, &release);
  return {"UCX",
          {static_cast<int>(major), static_cast<int>(minor),
           static_cast<int>(release)},
          {1, 13, 0}};
}

}  // namespace weft::comm
