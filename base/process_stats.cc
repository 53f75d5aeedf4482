#include "base/process_stats.h"

#include <dirent.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace weft {
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

int CountThreads() {
  DIR* dir = opendir("/proc/self/task");
  if (dir == nullptr) return 0;
  int threads = 0;
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

void CountFds(ProcessStats& stats) {
  DIR* dir = opendir("/proc/self/fd");
  if (dir == nullptr) return;
  while (const dirent* entry = readdir(dir)) {
    int fd = -1;
    if (!absl::SimpleAtoi(entry->d_name, &fd) || fd == dirfd(dir)) continue;
    ++stats.open_fds;
    if (IsTcp(fd)) ++stats.tcp_sockets;
  }
  closedir(dir);
}

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
         1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

std::string ReadText(const char* path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// When the machine started, seconds since 1970: "btime" of proc(5).
double BootTime() {
  double time = 0;
  for (absl::string_view line : absl::StrSplit(ReadText("/proc/stat"), '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    if (words.size() == 2 && words[0] == "btime") {
      (void)absl::SimpleAtod(words[1], &time);
    }
  }
  return time;
}

// Field 22 of /proc/self/stat is ticks since the machine's start; the name in
// field 2 may hold blanks and parentheses.
double StartTime() {
  const std::string stat = ReadText("/proc/self/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(name_end + 1), ' ', absl::SkipEmpty());
  constexpr size_t kIndex = 22 - 3;
  double ticks = 0;
  if (fields.size() <= kIndex || !absl::SimpleAtod(fields[kIndex], &ticks)) {
    return 0;
  }
  return BootTime() + ticks / sysconf(_SC_CLK_TCK);
}

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  stats.resident_bytes = ResidentBytes();
  stats.threads = CountThreads();
  stats.cpu_seconds = CpuSeconds();
  static const double start_time = StartTime();
  stats.start_time_seconds = start_time;
  CountFds(stats);
  return stats;
}

}  // namespace weft
