#include "worker/service/process_figures.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "base/mutex.h"
#include "gtest/gtest.h"

namespace weft::service {
namespace {

TEST(ProcessFiguresTest, CountsAThreadWhileItRuns) {
  // A sanitizer may start a thread of its own beside the first one.
  std::thread([] {}).join();
  const int before = ReadProcessFigures(0).threads();
  Notification done;
  Notification started;
  std::thread thread([&] {
    started.Notify();
    done.WaitForNotification();
  });
  started.WaitForNotification();
  EXPECT_EQ(ReadProcessFigures(0).threads(), before + 1);
  done.Notify();
  thread.join();
}

TEST(ProcessFiguresTest, CountsFdsAndTellsTcpFromOtherSockets) {
  const v1::ProcessFigures before = ReadProcessFigures(0);
  const int tcp = socket(AF_INET, SOCK_STREAM, 0);
  const int local = socket(AF_UNIX, SOCK_STREAM, 0);
  const int udp = socket(AF_INET, SOCK_DGRAM, 0);
  const v1::ProcessFigures during = ReadProcessFigures(0);
  EXPECT_EQ(during.open_fds(), before.open_fds() + 3);
  EXPECT_EQ(during.tcp_sockets(), before.tcp_sockets() + 1);
  close(tcp);
  close(local);
  close(udp);
  const v1::ProcessFigures after = ReadProcessFigures(0);
  EXPECT_EQ(after.open_fds(), before.open_fds());
  EXPECT_EQ(after.tcp_sockets(), before.tcp_sockets());
}

TEST(ProcessFiguresTest, CountsTouchedMemory) {
  constexpr int64_t kBytes = 64 << 20;
  const int64_t before = ReadProcessFigures(0).resident_bytes();
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, kBytes);
  EXPECT_GE(ReadProcessFigures(0).resident_bytes(), before + kBytes * 9 / 10);
  munmap(memory, kBytes);
}

TEST(ProcessFiguresTest, PassesDeviceBytesThrough) {
  EXPECT_EQ(ReadProcessFigures(17).device_bytes(), 17);
}

}  // namespace
}  // namespace weft::service
