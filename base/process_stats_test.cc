#include "base/process_stats.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Gt;
using ::testing::Le;

TEST(ProcessStatsTest, CountsAThreadWhileItRuns) {
  // A sanitizer may start a thread of its own beside the first one.
  std::thread([] {}).join();
  const int before = ReadProcessStats().threads;
  Notification done;
  Notification started;
  std::thread thread([&] {
    started.Notify();
    done.WaitForNotification();
  });
  started.WaitForNotification();
  EXPECT_EQ(ReadProcessStats().threads, before + 1);
  done.Notify();
  thread.join();
}

TEST(ProcessStatsTest, CountsFdsAndTellsTcpFromOtherSockets) {
  const ProcessStats before = ReadProcessStats();
  const int tcp = socket(AF_INET, SOCK_STREAM, 0);
  const int local = socket(AF_UNIX, SOCK_STREAM, 0);
  const int udp = socket(AF_INET, SOCK_DGRAM, 0);
  const ProcessStats during = ReadProcessStats();
  EXPECT_EQ(during.open_fds, before.open_fds + 3);
  EXPECT_EQ(during.tcp_sockets, before.tcp_sockets + 1);
  close(tcp);
  close(local);
  close(udp);
  const ProcessStats after = ReadProcessStats();
  EXPECT_EQ(after.open_fds, before.open_fds);
  EXPECT_EQ(after.tcp_sockets, before.tcp_sockets);
}

TEST(ProcessStatsTest, CountsTouchedMemory) {
  constexpr int64_t kBytes = 64 << 20;
  const int64_t before = ReadProcessStats().resident_bytes;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, kBytes);
  EXPECT_GE(ReadProcessStats().resident_bytes, before + kBytes * 9 / 10);
  munmap(memory, kBytes);
}

TEST(ProcessStatsTest, CpuTimeGoesUpWithWork) {
  const double before = ReadProcessStats().cpu_seconds;
  EXPECT_GE(before, 0);
  volatile double sum = 0;
  while (ReadProcessStats().cpu_seconds <= before) sum = sum + 1;
}

// The start is known to a second or so: the machine's is a whole number.
TEST(ProcessStatsTest, StartedNotLongAgo) {
  const double now = absl::ToUnixMillis(absl::Now()) * 1e-3;
  EXPECT_THAT(ReadProcessStats().start_time_seconds,
              AllOf(Gt(now - 3600), Le(now + 1)));
}

}  // namespace
}  // namespace weft
