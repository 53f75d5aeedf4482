#include "base/mutex.h"

#include <chrono>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

class Counter {
 public:
  void Add() {
    MutexLock lock(&mu_);
    ++value_;
  }
  int value() {
    MutexLock lock(&mu_);
    return value_;
  }

 private:
  Mutex mu_;
  int value_ ABSL_GUARDED_BY(mu_) = 0;
};

// Hands numbers from one thread to another.
class Queue {
 public:
  void Push(int x) {
    MutexLock lock(&mu_);
    items_.push_back(x);
    not_empty_.Signal();
  }
  int Pop() {
    MutexLock lock(&mu_);
    while (items_.empty()) not_empty_.Wait(&mu_);
    const int x = items_.front();
    items_.pop_front();
    return x;
  }

 private:
  Mutex mu_;
  CondVar not_empty_;
  std::deque<int> items_ ABSL_GUARDED_BY(mu_);
};

TEST(MutexTest, ExcludesOtherThreads) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 1000; ++j) counter.Add();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter.value(), 4000);
}

TEST(MutexTest, TryLockFailsWhileAnotherHoldsTheLock) {
  Mutex mu;
  MutexLock lock(&mu);
  bool taken = true;
  std::thread([&] {
    if (mu.TryLock()) {
      mu.Unlock();
    } else {
      taken = false;
    }
  }).join();
  EXPECT_FALSE(taken);
}

TEST(CondVarTest, WaitSeesWhatWasSignalled) {
  Queue queue;
  std::thread producer([&] {
    for (int i = 0; i < 100; ++i) queue.Push(i);
  });
  for (int i = 0; i < 100; ++i) EXPECT_EQ(queue.Pop(), i);
  producer.join();
}

TEST(CondVarTest, WaitForRunsOut) {
  Mutex mu;
  CondVar cv;
  MutexLock lock(&mu);
  while (cv.WaitFor(&mu, absl::Milliseconds(1))) {
  }
  EXPECT_FALSE(cv.WaitFor(&mu, absl::ZeroDuration()));
  EXPECT_FALSE(cv.WaitFor(&mu, -absl::InfiniteDuration()));
}

TEST(DeadlineAfterTest, IsTheFarthestForAnEndlessTimeout) {
  EXPECT_EQ(DeadlineAfter(absl::InfiniteDuration()),
            std::chrono::steady_clock::time_point::max());
  EXPECT_EQ(DeadlineAfter(absl::Hours(24 * 365 * 1000)),
            std::chrono::steady_clock::time_point::max());
}

TEST(NotificationTest, WakesAllWaiters) {
  Notification notification;
  int seen = 0;
  int value = 0;
  Counter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      notification.WaitForNotification();
      if (value == 7) counter.Add();
    });
  }
  EXPECT_FALSE(notification.HasBeenNotified());
  value = 7;
  notification.Notify();
  for (std::thread& thread : threads) thread.join();
  seen = counter.value();
  EXPECT_EQ(seen, 3);
  EXPECT_TRUE(notification.HasBeenNotified());
}

TEST(NotificationTest, WaitWithTimeout) {
  Notification notification;
  EXPECT_FALSE(
      notification.WaitForNotificationWithTimeout(absl::Milliseconds(1)));
  notification.Notify();
  EXPECT_TRUE(notification.WaitForNotificationWithTimeout(absl::Seconds(60)));
  EXPECT_TRUE(
      notification.WaitForNotificationWithTimeout(absl::InfiniteDuration()));
}

TEST(NotificationTest, MayBeDestroyedByTheWaiter) {
  for (int i = 0; i < 200; ++i) {
    auto notification = std::make_unique<Notification>();
    std::thread notifier([n = notification.get()] { n->Notify(); });
    notification->WaitForNotification();
    notification.reset();
    notifier.join();
  }
}

TEST(BlockingCounterTest, WaitsForAll) {
  constexpr int kThreads = 4;
  BlockingCounter counter(kThreads);
  std::vector<int> results(kThreads, 0);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      results[i] = i + 1;
      counter.DecrementCount();
    });
  }
  counter.Wait();
  EXPECT_EQ(results, (std::vector<int>{1, 2, 3, 4}));
  for (std::thread& thread : threads) thread.join();
}

TEST(BlockingCounterTest, TheLastDecrementSaysSo) {
  BlockingCounter counter(2);
  EXPECT_FALSE(counter.WaitWithTimeout(absl::ZeroDuration()));
  EXPECT_FALSE(counter.DecrementCount());
  EXPECT_TRUE(counter.DecrementCount());
  EXPECT_TRUE(counter.WaitWithTimeout(absl::ZeroDuration()));
  counter.Wait();
}

TEST(BlockingCounterTest, OfZeroDoesNotWait) { BlockingCounter(0).Wait(); }

}  // namespace
}  // namespace weft
