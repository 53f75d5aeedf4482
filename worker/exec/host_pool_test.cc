#include "worker/exec/host_pool.h"

#include <cstdint>
#include <cstring>
#include <memory>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/cpu/cpu_device.h"

namespace weft::exec {
namespace {

TEST(HostPoolTest, PiecesAreZeroAlignedAndApart) {
  ASSERT_OK_AND_ASSIGN(auto device, device::CreateCpuDevice({}));
  HostPool pool(device.get());
  std::byte* previous = nullptr;
  // Small ones, one that is no multiple of the alignment, one beyond a chunk,
  // one that no longer fits beside what was taken.
  for (const int64_t bytes :
       {int64_t{8}, int64_t{100}, int64_t{3} << 20, int64_t{0},
        (int64_t{1} << 20) - 1, int64_t{64}}) {
    ASSERT_OK_AND_ASSIGN(std::byte * piece, pool.Take(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece) % 64, 0u);
    for (int64_t i = 0; i < bytes; ++i) {
      ASSERT_EQ(piece[i], std::byte{0}) << "byte " << i << " of " << bytes;
    }
    std::memset(piece, 0xFF, bytes);
    EXPECT_NE(piece, previous);
    if (bytes > 0) previous = piece;
  }
}

TEST(HostPoolTest, ErrorsAreThoseOfTheDevice) {
  ASSERT_OK_AND_ASSIGN(auto device, device::CreateCpuDevice({}));
  HostPool pool(device.get());
  EXPECT_THAT(pool.TakeArray<int64_t>(int64_t{1} << 58),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace weft::exec
