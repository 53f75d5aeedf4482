// What every device must do, as a suite of tests.
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance,
//                            testing::Values(DeviceUnderTest{...}),
//                            DeviceUnderTestName);
#ifndef WEFT_KERNELS_DEVICE_CONFORMANCE_H_
#define WEFT_KERNELS_DEVICE_CONFORMANCE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "kernels/device/device.h"

namespace weft::device {

// Argument of DeviceUnderTest::affine.
struct AffineArgs {
  const int64_t* from = nullptr;
  int64_t* to = nullptr;
  int64_t factor = 1;
  int64_t addend = 0;
  // Host memory. Not null: the work waits until it is true, then reads `from`.
  const std::atomic<bool>* gate = nullptr;
};

// How the suite makes a device and computes on it.
struct DeviceUnderTest {
  std::string name;
  // A device whose buffers may hold `limit` bytes together; 0: no limit.
  std::function<absl::StatusOr<std::unique_ptr<Device>>(int64_t limit)> create;
  // Work that does `*to = *from * factor + addend` on the stream. `arg` points
  // to AffineArgs that live as long as the stream is busy.
  WorkFn affine = nullptr;
  // Reads one device value, with nothing in flight.
  std::function<int64_t(const int64_t* device_value)> read;
};

inline void PrintTo(const DeviceUnderTest& device, std::ostream* os) {
  *os << device.name;
}

inline std::string DeviceUnderTestName(
    const testing::TestParamInfo<DeviceUnderTest>& info) {
  return info.param.name;
}

class DeviceConformance : public testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override;

  int64_t Read(const int64_t* value) const { return GetParam().read(value); }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> first_;
  std::unique_ptr<Stream> second_;
  std::unique_ptr<Buffer> buffer_;  // of many values, all zero
  int64_t* values_ = nullptr;       // in buffer_
};

}  // namespace weft::device

#endif  // WEFT_KERNELS_DEVICE_CONFORMANCE_H_
