// What this process holds and has used, as the system counts it.
#ifndef WEFT_BASE_PROCESS_STATS_H_
#define WEFT_BASE_PROCESS_STATS_H_

#include <cstdint>

namespace weft {

struct ProcessStats {
  int64_t resident_bytes = 0;
  int open_fds = 0;
  int tcp_sockets = 0;  // among open_fds
  int threads = 0;
  double cpu_seconds = 0;         // of all threads, user and system
  double start_time_seconds = 0;  // since 1970
};

// Reads /proc. A figure that cannot be read is 0. Thread-safe.
ProcessStats ReadProcessStats();

}  // namespace weft

#endif  // WEFT_BASE_PROCESS_STATS_H_
