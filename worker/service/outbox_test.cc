#include "worker/service/outbox.h"

#include <chrono>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "gtest/gtest.h"

namespace weft::service {
namespace {

using ::weft::worker::v1::AttachRequest;

AttachRequest Step(int64_t step) {
  AttachRequest message;
  message.mutable_step_report()->mutable_metrics()->set_step(step);
  return message;
}

std::chrono::steady_clock::time_point Soon() {
  return DeadlineAfter(absl::Milliseconds(1));
}
std::chrono::steady_clock::time_point Late() {
  return DeadlineAfter(absl::Seconds(30));
}

TEST(OutboxTest, MessagesLeaveInTheOrderTheyCame) {
  Outbox outbox;
  outbox.Open();
  std::thread writer([&] {
    for (int i = 0; i < 100; ++i) outbox.Send(Step(i));
  });
  for (int i = 0; i < 100; ++i) {
    AttachRequest message;
    ASSERT_EQ(outbox.Pop(Late(), &message), Outbox::Event::kMessage);
    EXPECT_EQ(message.step_report().metrics().step(), i);
  }
  writer.join();
}

TEST(OutboxTest, PopTimesOutWhenThereIsNothing) {
  Outbox outbox;
  outbox.Open();
  AttachRequest message;
  EXPECT_EQ(outbox.Pop(Soon(), &message), Outbox::Event::kTimeout);
}

TEST(OutboxTest, DropsWhatIsSentWhileClosed) {
  Outbox outbox;
  AttachRequest message;
  outbox.Send(Step(1));
  outbox.Open();
  EXPECT_EQ(outbox.Pop(Soon(), &message), Outbox::Event::kTimeout);
  outbox.Send(Step(2));
  outbox.Close();
  EXPECT_EQ(outbox.Pop(Late(), &message), Outbox::Event::kClosed);
}

TEST(OutboxTest, CloseWakesWhoWaits) {
  Outbox outbox(/*capacity=*/1);
  outbox.Open();
  std::thread reader([&] {
    AttachRequest message;
    while (outbox.Pop(Late(), &message) == Outbox::Event::kMessage) {
    }
  });
  outbox.Close();
  reader.join();
  EXPECT_TRUE(outbox.WaitForRoom(absl::Seconds(30)));
}

TEST(OutboxTest, RoomComesBackWhenAMessageIsTaken) {
  Outbox outbox(/*capacity=*/2);
  outbox.Open();
  outbox.Send(Step(1));
  EXPECT_TRUE(outbox.WaitForRoom(absl::ZeroDuration()));
  outbox.Send(Step(2));
  EXPECT_FALSE(outbox.WaitForRoom(absl::Milliseconds(1)));
  std::thread reader([&] {
    AttachRequest message;
    outbox.Pop(Late(), &message);
  });
  EXPECT_TRUE(outbox.WaitForRoom(absl::Seconds(30)));
  reader.join();
}

TEST(OutboxTest, DrainingLetsOutWhatIsQueuedAndNothingElse) {
  Outbox outbox;
  outbox.Open();
  outbox.Send(Step(1));
  outbox.Drain();
  outbox.Send(Step(2));
  AttachRequest message;
  ASSERT_EQ(outbox.Pop(Late(), &message), Outbox::Event::kMessage);
  EXPECT_EQ(message.step_report().metrics().step(), 1);
  EXPECT_EQ(outbox.Pop(Late(), &message), Outbox::Event::kClosed);
}

}  // namespace
}  // namespace weft::service
