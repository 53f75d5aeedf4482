#include "kernels/device/cpu/cpu_device.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/conformance.h"
#include "kernels/device/device.h"

// Counts allocations of the whole program.
static std::atomic<int64_t> allocations{0};

void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* data = std::malloc(bytes > 0 ? bytes : 1)) return data;
  std::abort();
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }

namespace weft::device {
namespace {

constexpr int64_t kPage = 4096;

absl::Status Affine(void* arg, Stream&) {
  const auto& args = *static_cast<const AffineArgs*>(arg);
  while (args.gate != nullptr && !*args.gate) std::this_thread::yield();
  // Unsigned, because the suite lets it wrap.
  *args.to = static_cast<int64_t>(static_cast<uint64_t>(*args.from) *
                                      static_cast<uint64_t>(args.factor) +
                                  static_cast<uint64_t>(args.addend));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Device>> CreateLimited(int64_t limit) {
  CpuDeviceOptions options;
  options.memory_limit_bytes = limit;
  return CreateCpuDevice(options);
}

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance,
                         testing::Values(DeviceUnderTest{
                             "cpu", &CreateLimited, &Affine,
                             [](const int64_t* value) { return *value; }}),
                         DeviceUnderTestName);

absl::Status AwaitGate(void* arg, Stream&) {
  static_cast<Notification*>(arg)->WaitForNotification();
  return absl::OkStatus();
}

absl::Status Count(void* arg, Stream&) {
  ++*static_cast<int*>(arg);
  return absl::OkStatus();
}

class CpuDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    CpuDeviceOptions options;
    options.stream_queue_capacity = 16;
    ASSERT_OK_AND_ASSIGN(device_, CreateCpuDevice(options));
    ASSERT_OK_AND_ASSIGN(first_, device_->CreateStream("compute"));
    ASSERT_OK_AND_ASSIGN(second_, device_->CreateStream("ep"));
    ASSERT_OK_AND_ASSIGN(event_, device_->CreateEvent());
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> first_;
  std::unique_ptr<Stream> second_;
  std::unique_ptr<Event> event_;
};

TEST_F(CpuDeviceTest, WaitRefersToTheRecordBeforeItAndNotToLaterOnes) {
  Notification gate;
  int count = 0;
  first_->Launch(&Count, &count);
  first_->Record(*event_);
  second_->Wait(*event_);
  first_->Launch(&AwaitGate, &gate);
  first_->Record(*event_);
  EXPECT_OK(second_->Synchronize()) << "waits for the later record";
  EXPECT_EQ(count, 1);
  gate.Notify();
  EXPECT_OK(event_->Synchronize());
}

TEST_F(CpuDeviceTest, RecordOnAnotherStreamDoesNotReleaseAnEarlierWait) {
  Notification gate;
  int count = 0;
  first_->Launch(&AwaitGate, &gate);
  first_->Launch(&Count, &count);
  first_->Record(*event_);
  ASSERT_OK_AND_ASSIGN(auto third, device_->CreateStream("third"));
  int seen = -1;
  struct Args {
    int* from;
    int* to;
  } args = {&count, &seen};
  third->Wait(*event_);
  third->Launch(
      [](void* arg, Stream&) {
        auto& args = *static_cast<Args*>(arg);
        *args.to = *args.from;
        return absl::OkStatus();
      },
      &args);
  second_->Record(*event_);
  EXPECT_OK(event_->Synchronize());
  gate.Notify();
  EXPECT_OK(third->Synchronize());
  EXPECT_EQ(seen, 1);
}

TEST_F(CpuDeviceTest, StreamsRunAtTheSameTime) {
  Notification gate;
  first_->Launch(&AwaitGate, &gate);
  second_->Launch(
      [](void* arg, Stream&) {
        static_cast<Notification*>(arg)->Notify();
        return absl::OkStatus();
      },
      &gate);
  EXPECT_OK(first_->Synchronize());
  EXPECT_OK(second_->Synchronize());
}

TEST_F(CpuDeviceTest, FailureWakesAHostThatWaitsForAnEvent) {
  Notification gate;
  first_->Launch(&AwaitGate, &gate);
  first_->Record(*event_);
  std::thread failing([this] { device_->Fail(absl::AbortedError("stop")); });
  EXPECT_THAT(event_->Synchronize(), StatusIs(absl::StatusCode::kAborted));
  failing.join();
  gate.Notify();
  EXPECT_THAT(first_->Synchronize(), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(CpuDeviceTest, FailureDropsWorkThatIsQueuedBehindRunningWork) {
  Notification gate;
  int count = 0;
  first_->Launch(&AwaitGate, &gate);
  for (int i = 0; i < 5; ++i) first_->Launch(&Count, &count);
  first_->Record(*event_);
  second_->Wait(*event_);
  second_->Launch(&Count, &count);
  device_->Fail(absl::CancelledError("stop"));
  gate.Notify();
  EXPECT_THAT(first_->Synchronize(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(second_->Synchronize(), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(count, 0);
}

TEST_F(CpuDeviceTest, QueueGrowsAndKeepsItsOrder) {
  Notification gate;
  first_->Launch(&AwaitGate, &gate);
  int64_t value = 0;
  std::vector<AffineArgs> work(1000);
  uint64_t expected = 0;
  for (size_t i = 0; i < work.size(); ++i) {
    work[i] = {&value, &value, 5, static_cast<int64_t>(i)};
    expected = expected * 5 + i;
    first_->Launch(&Affine, &work[i]);
  }
  gate.Notify();
  EXPECT_OK(first_->Synchronize());
  EXPECT_EQ(value, static_cast<int64_t>(expected));
}

TEST_F(CpuDeviceTest, NothingIsAllocatedOnceTheQueuesAreLargeEnough) {
  int count = 0;
  const auto step = [&] {
    for (int i = 0; i < 50; ++i) {
      first_->Launch(&Count, &count);
      first_->Record(*event_);
      second_->Wait(*event_);
      second_->Launch(&Count, &count);
      second_->Record(*event_);
      first_->Wait(*event_);
    }
    return first_->Synchronize().ok() && second_->Synchronize().ok();
  };
  Notification gate;  // makes the queues hold more than a step's commands
  first_->Launch(&AwaitGate, &gate);
  first_->Record(*event_);
  second_->Wait(*event_);
  int other_count = 0;  // these two streams are not ordered
  for (int i = 0; i < 200; ++i) {
    first_->Launch(&Count, &count);
    second_->Launch(&Count, &other_count);
  }
  gate.Notify();
  ASSERT_OK(second_->Synchronize());
  ASSERT_OK(first_->Synchronize());
  const int64_t before = allocations.load();
  EXPECT_TRUE(step());
  EXPECT_TRUE(step());
  EXPECT_EQ(allocations.load() - before, 0);
}

TEST_F(CpuDeviceTest, ReturnedPagesLeavePhysicalMemoryAndReadZero) {
  constexpr int64_t kPages = 64;
  ASSERT_OK_AND_ASSIGN(
      auto buffer, device_->Allocate(kPages * kPage, MemoryCategory::kArena));
  EXPECT_THAT(device_->ResidentBytes(*buffer), IsOkAndHolds(0));
  EXPECT_OK(device_->Poison(buffer->data(), buffer->bytes(), *first_));
  EXPECT_OK(first_->Synchronize());
  EXPECT_THAT(device_->ResidentBytes(*buffer), IsOkAndHolds(kPages * kPage));

  // From the middle of page 0 to the middle of page 33: 32 whole pages.
  EXPECT_OK(
      device_->ReturnPages(buffer->data() + kPage / 2, 33 * kPage, *first_));
  EXPECT_OK(first_->Synchronize());
  EXPECT_THAT(device_->ResidentBytes(*buffer),
              IsOkAndHolds((kPages - 32) * kPage));
  EXPECT_EQ(buffer->data()[kPage - 1], std::byte{0xFF});
  EXPECT_EQ(buffer->data()[kPage], std::byte{0});
  EXPECT_EQ(buffer->data()[33 * kPage - 1], std::byte{0});
  EXPECT_EQ(buffer->data()[33 * kPage], std::byte{0xFF});
}

TEST_F(CpuDeviceTest, PoisonInsideWorkOfTheStreamActsAtOnce) {
  struct Args {
    Device* device;
    int64_t value;
    int64_t seen;
  } args = {device_.get(), 0, 0};
  first_->Launch(
      [](void* arg, Stream& stream) {
        auto& args = *static_cast<Args*>(arg);
        absl::Status status =
            args.device->Poison(&args.value, sizeof(args.value), stream);
        args.seen = args.value;
        return status;
      },
      &args);
  EXPECT_OK(first_->Synchronize());
  EXPECT_EQ(args.seen, -1);
}

TEST_F(CpuDeviceTest, ThreadsAreNamedAfterTheirStreams) {
  char title[16] = {};
  first_->Launch(
      [](void* arg, Stream&) {
        pthread_getname_np(pthread_self(), static_cast<char*>(arg), 16);
        return absl::OkStatus();
      },
      title);
  EXPECT_OK(first_->Synchronize());
  EXPECT_STREQ(title, "weft-compute");
}

int CountThreads() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Threads:", 0) == 0) return std::stoi(line.substr(8));
  }
  return -1;
}

TEST_F(CpuDeviceTest, ThreadsAndMemoryReturnToTheBaseline) {
  const int threads = CountThreads();
  for (int i = 0; i < 20; ++i) {
    ASSERT_OK_AND_ASSIGN(auto device, CreateCpuDevice({}));
    ASSERT_OK_AND_ASSIGN(auto stream, device->CreateStream("short"));
    ASSERT_OK_AND_ASSIGN(auto buffer,
                         device->Allocate(1 << 20, MemoryCategory::kArena));
    EXPECT_OK(device->Poison(buffer->data(), buffer->bytes(), *stream));
    EXPECT_OK(stream->Synchronize());
    if (i % 2 == 0) device.reset();  // both orders of destruction
  }
  EXPECT_EQ(CountThreads(), threads);
}

TEST(CpuDeviceOptionsTest, ImpossibleOptionsAreRefused) {
  CpuDeviceOptions options;
  options.stream_queue_capacity = 0;
  EXPECT_THAT(CreateCpuDevice(options),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace weft::device
