#include "worker/service/process_figures.h"

#include <malloc.h>

#include "base/process_stats.h"

namespace weft::service {

v1::ProcessFigures ReadProcessFigures(int64_t device_bytes) {
  const ProcessStats stats = ReadProcessStats();
  v1::ProcessFigures figures;
  figures.set_device_bytes(device_bytes);
  figures.set_resident_bytes(stats.resident_bytes);
  figures.set_threads(stats.threads);
  figures.set_open_fds(stats.open_fds);
  figures.set_tcp_sockets(stats.tcp_sockets);
  return figures;
}

void ReturnFreeMemory() { malloc_trim(0); }

}  // namespace weft::service
