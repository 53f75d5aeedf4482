#include "worker/service/backoff.h"

#include <set>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace weft::service {
namespace {

TEST(BackoffTest, DelaysDoubleUpToTheLargest) {
  Backoff::Options options;
  options.initial = absl::Milliseconds(100);
  options.max = absl::Milliseconds(500);
  Backoff backoff(options, /*seed=*/1);
  for (int expected_ms : {100, 200, 400, 500, 500}) {
    const absl::Duration delay = backoff.Next();
    EXPECT_GE(delay, absl::Milliseconds(expected_ms) / 2);
    EXPECT_LE(delay, absl::Milliseconds(expected_ms));
  }
  backoff.Reset();
  EXPECT_LE(backoff.Next(), absl::Milliseconds(100));
}

TEST(BackoffTest, WorkersDoNotComeBackAllAtOnce) {
  std::set<absl::Duration> delays;
  for (int seed = 0; seed < 20; ++seed) {
    delays.insert(Backoff(Backoff::Options(), seed).Next());
  }
  EXPECT_EQ(delays.size(), 20);
}

}  // namespace
}  // namespace weft::service
