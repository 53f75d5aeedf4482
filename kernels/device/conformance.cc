#include "kernels/device/conformance.h"

#include <atomic>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"

namespace weft::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kValues = 4096;

absl::Status FailWithDataLoss(void*, Stream&) {
  return absl::DataLossError("planted");
}

}  // namespace

void DeviceConformance::SetUp() {
  ASSERT_OK_AND_ASSIGN(device_, GetParam().create(0));
  ASSERT_OK_AND_ASSIGN(first_, device_->CreateStream("first"));
  ASSERT_OK_AND_ASSIGN(second_, device_->CreateStream("second"));
  ASSERT_OK_AND_ASSIGN(
      buffer_,
      device_->Allocate(kValues * static_cast<int64_t>(sizeof(int64_t)),
                        MemoryCategory::kArena));
  values_ = reinterpret_cast<int64_t*>(buffer_->data());
}

namespace {

TEST_P(DeviceConformance, WorkOfOneStreamRunsInLaunchOrder) {
  std::vector<AffineArgs> work(1000);
  std::atomic<bool> all_are_launched{false};
  uint64_t expected = 0;
  for (size_t i = 0; i < work.size(); ++i) {
    work[i] = {values_, values_, 3, static_cast<int64_t>(i), &all_are_launched};
    expected = expected * 3 + i;
    first_->Launch(GetParam().affine, &work[i]);
  }
  all_are_launched = true;
  EXPECT_OK(first_->Synchronize());
  EXPECT_EQ(Read(values_), static_cast<int64_t>(expected));
}

TEST_P(DeviceConformance, WaitOrdersWorkOfTwoStreams) {
  ASSERT_OK_AND_ASSIGN(auto there, device_->CreateEvent());
  ASSERT_OK_AND_ASSIGN(auto back, device_->CreateEvent());
  // A value goes to and fro; each stream reads what the other wrote.
  constexpr int kTurns = 200;
  std::vector<AffineArgs> work(2 * kTurns);
  std::atomic<bool> all_are_launched{false};
  for (int i = 0; i < kTurns; ++i) {
    work[2 * i] = {values_, values_ + 1, 1, 1, &all_are_launched};
    work[2 * i + 1] = {values_ + 1, values_, 1, 1, &all_are_launched};
    first_->Wait(*back);
    first_->Launch(GetParam().affine, &work[2 * i]);
    first_->Record(*there);
    second_->Wait(*there);
    second_->Launch(GetParam().affine, &work[2 * i + 1]);
    second_->Record(*back);
  }
  all_are_launched = true;
  EXPECT_OK(back->Synchronize());
  EXPECT_EQ(Read(values_), 2 * kTurns);
}

TEST_P(DeviceConformance, EventNeverRecordedCountsAsComplete) {
  ASSERT_OK_AND_ASSIGN(auto event, device_->CreateEvent());
  AffineArgs work = {values_, values_, 1, 5};
  first_->Wait(*event);
  first_->Launch(GetParam().affine, &work);
  EXPECT_OK(event->Synchronize());
  EXPECT_OK(first_->Synchronize());
  EXPECT_EQ(Read(values_), 5);
}

TEST_P(DeviceConformance, EventOutlivesItsStream) {
  ASSERT_OK_AND_ASSIGN(auto event, device_->CreateEvent());
  std::atomic<bool> is_awaited{false};
  AffineArgs gated = {values_, values_, 1, 1, &is_awaited};
  AffineArgs then = {values_, values_ + 1, 2, 0};
  first_->Launch(GetParam().affine, &gated);
  first_->Record(*event);
  second_->Wait(*event);
  second_->Launch(GetParam().affine, &then);
  is_awaited = true;
  first_.reset();
  EXPECT_OK(event->Synchronize());
  EXPECT_OK(second_->Synchronize());
  EXPECT_EQ(Read(values_ + 1), 2);
}

TEST_P(DeviceConformance, FirstErrorSticksAndNothingHangs) {
  ASSERT_OK_AND_ASSIGN(auto event, device_->CreateEvent());
  AffineArgs work = {values_, values_, 1, 7};
  first_->Launch(&FailWithDataLoss, nullptr);
  EXPECT_THAT(first_->Synchronize(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("planted")));
  first_->Launch(GetParam().affine, &work);
  first_->Record(*event);
  second_->Wait(*event);
  second_->Launch(GetParam().affine, &work);
  EXPECT_THAT(second_->Synchronize(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(event->Synchronize(), StatusIs(absl::StatusCode::kDataLoss));
  device_->Fail(absl::CancelledError("too late"));
  EXPECT_THAT(device_->status(), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(Read(values_), 0) << "work ran after the failure";
}

TEST_P(DeviceConformance, FailFromOutsideDropsLaterWork) {
  device_->Fail(absl::CancelledError("the job was cancelled"));
  AffineArgs work = {values_, values_, 1, 7};
  first_->Launch(GetParam().affine, &work);
  EXPECT_THAT(first_->Synchronize(),
              StatusIs(absl::StatusCode::kCancelled, "the job was cancelled"));
  EXPECT_EQ(Read(values_), 0);
}

TEST_P(DeviceConformance, PoisonFillsExactlyItsBytesWithOnes) {
  AffineArgs before = {values_, values_ + 1, 1, 3};
  AffineArgs after = {values_ + 2, values_ + 4, 1, 1};
  first_->Launch(GetParam().affine, &before);
  EXPECT_OK(device_->Poison(values_ + 1, 2 * sizeof(int64_t), *first_));
  first_->Launch(GetParam().affine, &after);
  EXPECT_OK(first_->Synchronize());
  EXPECT_EQ(Read(values_), 0);
  EXPECT_EQ(Read(values_ + 1), -1);
  EXPECT_EQ(Read(values_ + 2), -1);
  EXPECT_EQ(Read(values_ + 3), 0);
  EXPECT_EQ(Read(values_ + 4), 0) << "work after the poison sees it";
}

TEST_P(DeviceConformance, MemoryIsZeroAlignedAndAccounted) {
  const int64_t before = device_->bytes_in_use();
  {
    ASSERT_OK_AND_ASSIGN(auto parameters,
                         device_->Allocate(1000, MemoryCategory::kParameters));
    ASSERT_OK_AND_ASSIGN(auto empty,
                         device_->Allocate(0, MemoryCategory::kStaging));
    ASSERT_OK_AND_ASSIGN(auto host, device_->AllocateHost(100));
    EXPECT_EQ(parameters->bytes(), 1000);
    EXPECT_NE(empty->data(), nullptr);
    EXPECT_NE(host->data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(parameters->data()) % 64, 0u);
    EXPECT_EQ(Read(reinterpret_cast<int64_t*>(parameters->data()) + 124), 0);
    EXPECT_EQ(device_->bytes_in_use(MemoryCategory::kParameters), 1000);
    EXPECT_EQ(device_->bytes_in_use(), before + 1000);
  }
  EXPECT_EQ(device_->bytes_in_use(), before);
  EXPECT_EQ(device_->peak_bytes(), before + 1000);
}

TEST_P(DeviceConformance, AllocationBeyondTheLimitNamesWhatIsAskedAndUsed) {
  ASSERT_OK_AND_ASSIGN(auto device, GetParam().create(10000));
  ASSERT_OK_AND_ASSIGN(auto held,
                       device->Allocate(6000, MemoryCategory::kParameters));
  EXPECT_THAT(device->Allocate(5000, MemoryCategory::kArena),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("5000 bytes asked for arena"),
                             HasSubstr("6000 of 10000 bytes are in use"))));
  EXPECT_THAT(device->Allocate(-1, MemoryCategory::kArena),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(device->AllocateHost(-1),
              StatusIs(absl::StatusCode::kInvalidArgument));
  held.reset();
  EXPECT_OK(device->Allocate(10000, MemoryCategory::kArena));
}

TEST_P(DeviceConformance, MoreMemoryThanThereIsIsRefusedAndNotAccounted) {
  const int64_t before = device_->bytes_in_use();
  const int64_t too_much = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(device_->Allocate(too_much, MemoryCategory::kArena),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(device_->AllocateHost(too_much),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(device_->bytes_in_use(), before);
}

TEST_P(DeviceConformance, ResidentBytesAreWithinTheBuffer) {
  AffineArgs work = {values_, values_ + 1, 1, 3};
  first_->Launch(GetParam().affine, &work);
  EXPECT_OK(first_->Synchronize());
  ASSERT_OK_AND_ASSIGN(const int64_t resident,
                       device_->ResidentBytes(*buffer_));
  EXPECT_GT(resident, 0);
  EXPECT_LE(resident, buffer_->bytes());
}

TEST_P(DeviceConformance, ReturnPagesIsStreamOrdered) {
  AffineArgs before = {values_, values_ + 1, 1, 3};
  AffineArgs after = {values_ + kValues - 1, values_, 1, 9};
  first_->Launch(GetParam().affine, &before);
  EXPECT_OK(device_->ReturnPages(values_, buffer_->bytes(), *first_));
  first_->Launch(GetParam().affine, &after);
  EXPECT_OK(first_->Synchronize());
  EXPECT_EQ(Read(values_), 9);
}

TEST_P(DeviceConformance, DeviceGoesBeforeItsStreams) {
  AffineArgs work = {values_, values_, 1, 1};
  for (int i = 0; i < 10; ++i) first_->Launch(GetParam().affine, &work);
  device_.reset();
  first_->Launch(GetParam().affine, &work);
  EXPECT_THAT(first_->Synchronize(), StatusIs(absl::StatusCode::kCancelled));
}

}  // namespace
}  // namespace weft::device
