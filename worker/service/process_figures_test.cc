#include "worker/service/process_figures.h"

#include <sys/socket.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace weft::service {
namespace {

TEST(ProcessFiguresTest, AreThoseOfThisProcessAndTheDevicesBytes) {
  const int tcp = socket(AF_INET, SOCK_STREAM, 0);
  const v1::ProcessFigures figures = ReadProcessFigures(17);
  EXPECT_EQ(figures.device_bytes(), 17);
  EXPECT_GT(figures.resident_bytes(), 1 << 20);
  EXPECT_GE(figures.threads(), 1);
  EXPECT_EQ(figures.tcp_sockets(), 1);
  EXPECT_GT(figures.open_fds(), figures.tcp_sockets());
  close(tcp);
}

}  // namespace
}  // namespace weft::service
