#include "worker/exec/testing/conductor.h"

#include <memory>
#include <set>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/cpu/cpu_device.h"

namespace weft::exec::testing {
namespace {

std::unique_ptr<device::Device> Conducted(Conductor& conductor) {
  return conductor.Wrap(*device::CreateCpuDevice({}));
}

// Work that adds a letter to a text.
struct Letter {
  std::string* text = nullptr;
  char letter = 0;
};

absl::Status Write(void* arg, device::Stream&) {
  const Letter& letter = *static_cast<const Letter*>(arg);
  letter.text->push_back(letter.letter);
  return absl::OkStatus();
}

// The order in which two streams run "ab" and "xy"; with `wait`, x after a.
std::string OrderOf(uint64_t seed, bool wait) {
  Conductor conductor(seed);
  auto device = Conducted(conductor);
  auto first = *device->CreateStream("first");
  auto second = *device->CreateStream("second");
  auto event = *device->CreateEvent();
  conductor.Reseed(seed);
  std::string text;
  Letter letters[] = {{&text, 'a'}, {&text, 'b'}, {&text, 'x'}, {&text, 'y'}};
  first->Launch(&Write, &letters[0]);
  first->Record(*event);
  first->Launch(&Write, &letters[1]);
  if (wait) second->Wait(*event);
  second->Launch(&Write, &letters[2]);
  second->Launch(&Write, &letters[3]);
  EXPECT_OK(first->Synchronize());
  EXPECT_OK(second->Synchronize());
  return text;
}

TEST(ConductorTest, DrawsEveryOrderThatTheStreamsAllow) {
  std::set<std::string> free;
  std::set<std::string> ordered;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    free.insert(OrderOf(seed, /*wait=*/false));
    ordered.insert(OrderOf(seed, /*wait=*/true));
  }
  EXPECT_THAT(free, ::testing::ElementsAre("abxy", "axby", "axyb", "xaby",
                                           "xayb", "xyab"));
  EXPECT_THAT(ordered, ::testing::ElementsAre("abxy", "axby", "axyb"));
}

TEST(ConductorTest, DrawsTheSameOrderFromTheSameSeed) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    EXPECT_EQ(OrderOf(seed, false), OrderOf(seed, false));
  }
}

// Comes to the next collective of a group of two, and leaves when told to.
struct Meeting {
  Conductor* conductor = nullptr;
  std::string group;
  const Notification* leave = nullptr;
};

absl::Status Meet(void* arg, device::Stream&) {
  const Meeting& meeting = *static_cast<const Meeting*>(arg);
  meeting.conductor->AtCollective(meeting.group, 2);
  meeting.leave->WaitForNotification();
  return absl::AbortedError("told to leave");
}

TEST(ConductorTest, TellsWhenRanksWaitForEachOther) {
  Conductor conductor(1);
  Notification leave;
  conductor.set_on_stuck([&] { leave.Notify(); });
  std::unique_ptr<device::Device> devices[] = {Conducted(conductor),
                                               Conducted(conductor)};
  std::unique_ptr<device::Stream> streams[] = {
      *devices[0]->CreateStream("gather"), *devices[1]->CreateStream("gather")};
  Meeting meetings[] = {{&conductor, "dp", &leave}, {&conductor, "ep", &leave}};
  conductor.HostsBegin(2);
  std::thread threads[2];
  for (int rank = 0; rank < 2; ++rank) {
    threads[rank] = std::thread([&, rank] {
      streams[rank]->Launch(&Meet, &meetings[rank]);
      EXPECT_THAT(streams[rank]->Synchronize(),
                  StatusIs(absl::StatusCode::kAborted));
      conductor.HostDone();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(leave.HasBeenNotified());
  conductor.HostsBegin(1);
}

}  // namespace
}  // namespace weft::exec::testing
