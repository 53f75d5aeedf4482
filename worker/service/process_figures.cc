#include "worker/service/process_figures.h"

#include <dirent.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "absl/strings/numbers.h"

namespace weft::service {
namespace {

int64_t ResidentBytes() {
  FILE* file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  long long size = 0;
  long long resident = 0;
  const int fields = std::fscanf(file, "%lld %lld", &size, &resident);
  std::fclose(file);
  return fields == 2 ? resident * sysconf(_SC_PAGESIZE) : 0;
}

int32_t CountThreads() {
  DIR* dir = opendir("/proc/self/task");
  if (dir == nullptr) return 0;
  int32_t threads = 0;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') ++threads;
  }
  closedir(dir);
  return threads;
}

bool IsTcp(int fd) {
  int protocol = 0;
  socklen_t size = sizeof(protocol);
  return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
         protocol == IPPROTO_TCP;
}

void CountFds(v1::ProcessFigures* figures) {
  DIR* dir = opendir("/proc/self/fd");
  if (dir == nullptr) return;
  while (const dirent* entry = readdir(dir)) {
    int fd = -1;
    if (!absl::SimpleAtoi(entry->d_name, &fd) || fd == dirfd(dir)) continue;
    figures->set_open_fds(figures->open_fds() + 1);
    if (IsTcp(fd)) figures->set_tcp_sockets(figures->tcp_sockets() + 1);
  }
  closedir(dir);
}

}  // namespace

v1::ProcessFigures ReadProcessFigures(int64_t device_bytes) {
  v1::ProcessFigures figures;
  figures.set_device_bytes(device_bytes);
  figures.set_resident_bytes(ResidentBytes());
  figures.set_threads(CountThreads());
  CountFds(&figures);
  return figures;
}

void ReturnFreeMemory() { malloc_trim(0); }

}  // namespace weft::service
