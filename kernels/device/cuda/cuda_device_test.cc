#include "kernels/device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>
#include <sched.h>

#include <atomic>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/conformance.h"
#include "kernels/device/cuda/affine.h"
#include "kernels/device/device.h"

namespace weft::device {
namespace {

using ::testing::HasSubstr;

void CUDART_CB AwaitGate(void* gate) {
  while (!*static_cast<const std::atomic<bool>*>(gate)) sched_yield();
}

// A stream takes some 1,000 pending launches before launching blocks: what
// follows gated work on a stream is gated by it.
absl::Status Affine(void* arg, Stream& stream) {
  static std::map<const Stream*, const std::atomic<bool>*> gates;
  const auto& args = *static_cast<const AffineArgs*>(arg);
  if (args.gate != nullptr && gates[&stream] != args.gate) {
    gates[&stream] = args.gate;
    cuda::Check(cudaLaunchHostFunc(cuda::Handle(stream), &AwaitGate,
                                   const_cast<std::atomic<bool>*>(args.gate)),
                "launching a host function", stream);
  }
  cuda::LaunchAffine(args.from, args.to, args.factor, args.addend, stream);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Device>> CreateLimited(int64_t limit) {
  CudaDeviceOptions options;
  options.memory_limit_bytes = limit;
  // So that the suite's accounts are those of its buffers.
  options.compute_workspace_bytes = 0;
  options.workspace_bytes = 0;
  return CreateCudaDevice(options);
}

int64_t ReadValue(const int64_t* value) {
  int64_t out = 0;
  EXPECT_EQ(cudaMemcpy(&out, value, sizeof(out), cudaMemcpyDefault),
            cudaSuccess);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformance,
                         testing::Values(DeviceUnderTest{"cuda", &CreateLimited,
                                                         &Affine, &ReadValue}),
                         DeviceUnderTestName);

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    CudaDeviceOptions options;
    options.workspace_bytes = 4096;
    ASSERT_OK_AND_ASSIGN(device_, CreateCudaDevice(options));
    ASSERT_OK_AND_ASSIGN(stream_, device_->CreateStream("reduce"));
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

struct Marks {
  int64_t first = -1;
  int64_t second = -1;
};

absl::Status Mark(void* arg, Stream& stream) {
  auto& marks = *static_cast<Marks*>(arg);
  stream.Timestamp(RealClock(), &marks.first);
  stream.Timestamp(RealClock(), &marks.second);
  return absl::OkStatus();
}

TEST_F(CudaDeviceTest, TimestampsAreOnTheClockAndInOrder) {
  for (int round = 0; round < 3; ++round) {
    Marks marks;
    const int64_t before = RealClock().MonotonicNanos();
    stream_->Launch(&Mark, &marks);
    EXPECT_OK(stream_->Synchronize());
    const int64_t after = RealClock().MonotonicNanos();
    EXPECT_LE(before, marks.first);
    EXPECT_LE(marks.first, marks.second);
    EXPECT_LE(marks.second, after);
  }
}

// Adds 1 to a host's number, in the order of the stream.
void Increment(void* number) { ++*static_cast<int64_t*>(number); }

struct Round {
  const int64_t* from = nullptr;  // device
  int64_t* host = nullptr;        // host memory that the device reaches
  int64_t* to = nullptr;          // device
};

// host = from; host += 1 on the host; to = host.
absl::Status RunRound(void* arg, Stream& stream) {
  const Round& round = *static_cast<const Round*>(arg);
  const cudaStream_t handle = cuda::Handle(stream);
  cudaMemcpyAsync(round.host, round.from, sizeof(int64_t), cudaMemcpyDefault,
                  handle);
  stream.CallHost(&Increment, round.host);
  cudaMemcpyAsync(round.to, round.host, sizeof(int64_t), cudaMemcpyDefault,
                  handle);
  return absl::OkStatus();
}

TEST_F(CudaDeviceTest, AFunctionOfTheHostRunsInTheOrderOfTheStream) {
  ASSERT_OK_AND_ASSIGN(auto host, device_->AllocateHost(sizeof(int64_t)));
  ASSERT_OK_AND_ASSIGN(auto values,
                       device_->Allocate(64, MemoryCategory::kArena));
  auto* value = reinterpret_cast<int64_t*>(values->data());
  Round round = {value, reinterpret_cast<int64_t*>(host->data()), value};
  const DeviceCounters before = device_->counters();
  for (int i = 0; i < 100; ++i) stream_->Launch(&RunRound, &round);
  EXPECT_EQ(device_->counters().host_waits, before.host_waits);
  EXPECT_OK(stream_->Synchronize());
  EXPECT_EQ(*round.host, 100);
}

TEST_F(CudaDeviceTest, AFailedDeviceCallsNoFunctionOfTheHost) {
  ASSERT_OK_AND_ASSIGN(auto host, device_->AllocateHost(sizeof(int64_t)));
  ASSERT_OK_AND_ASSIGN(auto values,
                       device_->Allocate(64, MemoryCategory::kArena));
  std::atomic<bool> gate{false};
  AffineArgs args;
  args.from = args.to = reinterpret_cast<int64_t*>(values->data());
  args.gate = &gate;
  stream_->Launch(&Affine, &args);
  Round round = {args.from, reinterpret_cast<int64_t*>(host->data()), args.to};
  stream_->Launch(&RunRound, &round);
  device_->Fail(absl::CancelledError("stop"));
  gate = true;
  EXPECT_THAT(stream_->Synchronize(),
              StatusIs(absl::StatusCode::kCancelled, "stop"));
  EXPECT_EQ(*round.host, *args.from);
}

TEST_F(CudaDeviceTest, AnEventComesBackWhenTheDeviceFailsAlthoughItIsStuck) {
  ASSERT_OK_AND_ASSIGN(auto event, device_->CreateEvent());
  std::atomic<bool> gate{false};
  ASSERT_OK_AND_ASSIGN(auto values,
                       device_->Allocate(64, MemoryCategory::kArena));
  AffineArgs args;
  args.from = args.to = reinterpret_cast<int64_t*>(values->data());
  args.gate = &gate;
  stream_->Launch(&Affine, &args);
  stream_->Record(*event);
  device_->Fail(absl::CancelledError("stop"));
  EXPECT_THAT(event->Synchronize(),
              StatusIs(absl::StatusCode::kCancelled, "stop"));
  gate = true;
}

absl::Status AskForWorkspace(void* bytes, Stream& stream) {
  cuda::Workspace(stream, *static_cast<int64_t*>(bytes));
  return absl::OkStatus();
}

TEST_F(CudaDeviceTest, TooLargeAWorkspaceFailsTheDevice) {
  int64_t bytes = 4096;
  stream_->Launch(&AskForWorkspace, &bytes);
  EXPECT_OK(stream_->Synchronize());
  bytes = 4097;
  stream_->Launch(&AskForWorkspace, &bytes);
  EXPECT_THAT(stream_->Synchronize(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("4097 bytes of workspace")));
}

TEST_F(CudaDeviceTest, CountsAllocationsAndHostWaits) {
  const DeviceCounters before = device_->counters();
  ASSERT_OK_AND_ASSIGN(auto host, device_->AllocateHost(10));
  ASSERT_OK_AND_ASSIGN(auto memory,
                       device_->Allocate(10, MemoryCategory::kArena));
  EXPECT_OK(stream_->Synchronize());
  const DeviceCounters after = device_->counters();
  EXPECT_EQ(after.allocations, before.allocations + 2);
  EXPECT_EQ(after.host_waits, before.host_waits + 1);
}

TEST(CreateCudaDeviceTest, NamesADeviceThatDoesNotExist) {
  CudaDeviceOptions options;
  options.ordinal = 1000;
  EXPECT_THAT(CreateCudaDevice(options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("CUDA device 1000 of")));
}

}  // namespace
}  // namespace weft::device
