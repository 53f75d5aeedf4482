#include "client/progress.h"

#include <sstream>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

using ::testing::HasSubstr;

v1::WatchJobResponse Snapshot(v1::JobState state, int64_t steps) {
  v1::WatchJobResponse update;
  update.mutable_snapshot()->set_state(state);
  update.mutable_snapshot()->mutable_spec()->set_steps(steps);
  return update;
}

v1::WatchJobResponse Event(v1::JobState state, const std::string& message) {
  v1::WatchJobResponse update;
  update.mutable_event()->set_state(state);
  update.mutable_event()->set_message(message);
  return update;
}

v1::WatchJobResponse Step(int64_t step, double loss, double seconds = 0.5) {
  v1::WatchJobResponse update;
  v1::StepMetrics& metrics = *update.mutable_step();
  metrics.set_step(step);
  metrics.set_loss(loss);
  metrics.set_tokens(8192);
  metrics.set_step_seconds(seconds);
  metrics.set_ep_seconds(0.2);
  metrics.set_ep_exposed_seconds(0.05);
  return update;
}

v1::WatchJobResponse Eval(int64_t step, double loss) {
  v1::WatchJobResponse update;
  update.mutable_eval()->set_step(step);
  update.mutable_eval()->set_loss(loss);
  return update;
}

TEST(HiddenShareTest, IsWhatIsNotExposed) {
  v1::StepMetrics metrics;
  EXPECT_EQ(HiddenShare(metrics), std::nullopt);
  metrics.set_ep_seconds(0.1);
  metrics.set_ep_exposed_seconds(0.06);
  EXPECT_DOUBLE_EQ(*HiddenShare(metrics), 0.4);
  metrics.set_ep_exposed_seconds(0.11);  // clocks of several ranks
  EXPECT_EQ(*HiddenShare(metrics), 0);
}

TEST(ProgressTrackerTest, TheLineSaysHowFarAndHowFast) {
  ProgressTracker tracker;
  tracker.Observe(Snapshot(v1::JOB_STATE_QUEUED, 600));
  EXPECT_EQ(tracker.Line(), "queued");
  tracker.Observe(Event(v1::JOB_STATE_STARTING, "4 workers taken"));
  EXPECT_EQ(tracker.Line(), "starting: 4 workers taken");
  tracker.Observe(Step(120, 2.3141));
  EXPECT_EQ(tracker.Line(),
            "step 120/600 [#-------]  loss 2.314 nats  "
            "16.4k tokens/s  ETA 4:00  hidden 75%");
}

TEST(ProgressTrackerTest, RatesAreMeansOverRecentSteps) {
  ProgressTracker tracker;
  tracker.Observe(Snapshot(v1::JOB_STATE_RUNNING, 1001));
  tracker.Observe(Step(1, 3, 1));
  tracker.Observe(Step(2, 3, 2));                       // 1 + 0.1 * (2 - 1)
  EXPECT_THAT(tracker.Line(), HasSubstr("ETA 18:19"));  // 999 * 1.1
}

TEST(ProgressTrackerTest, ASnapshotInTheMiddleShowsItsLastStep) {
  ProgressTracker tracker;
  v1::WatchJobResponse snapshot = Snapshot(v1::JOB_STATE_RUNNING, 10);
  *snapshot.mutable_snapshot()->mutable_last_step() = Step(7, 2).step();
  tracker.Observe(snapshot);
  EXPECT_EQ(tracker.step(), 7);
  EXPECT_FALSE(tracker.is_last_step());
  tracker.Observe(Step(10, 2));
  EXPECT_TRUE(tracker.is_last_step());
}

TEST(ProgressPrinterTest, ElsewhereALineIsWrittenNowAndThen) {
  std::ostringstream out;
  FakeClock clock;
  clock.Advance(absl::Seconds(100));
  ProgressPrinter::Options options;
  options.every_seconds = 10;
  {
    ProgressPrinter printer(options, out, clock);
    printer.Observe(Snapshot(v1::JOB_STATE_QUEUED, 40));
    printer.Observe(Event(v1::JOB_STATE_RUNNING, "on 4 workers"));
    for (int step = 1; step <= 40; ++step) {
      printer.Observe(Step(step, 3));
      clock.Advance(absl::Seconds(1));
    }
    printer.Observe(Eval(40, 2.5));
    printer.Observe(Event(v1::JOB_STATE_SUCCEEDED, "all steps ran"));
    printer.Observe(Snapshot(v1::JOB_STATE_SUCCEEDED, 40));
  }
  std::istringstream lines(out.str());
  std::string heads;
  for (std::string line; std::getline(lines, line);) {
    heads += line.substr(0, line.find(" [")) + "\n";
  }
  EXPECT_EQ(heads,
            "queued\n"
            "running: on 4 workers\n"
            "step 1/40\n"
            "step 11/40\n"
            "step 21/40\n"
            "step 31/40\n"
            "step 40/40\n"
            "validation after step 40: loss 2.500 nats a token\n");
}

TEST(ProgressPrinterTest, ElsewhereStepsCountToo) {
  std::ostringstream out;
  FakeClock clock;
  clock.Advance(absl::Seconds(100));
  ProgressPrinter::Options options;
  options.every_steps = 3;
  ProgressPrinter printer(options, out, clock);
  for (int step = 1; step <= 8; ++step) printer.Observe(Step(step, 3));
  EXPECT_THAT(out.str(), HasSubstr("step 1/"));
  EXPECT_THAT(out.str(), HasSubstr("step 4/"));
  EXPECT_THAT(out.str(), HasSubstr("step 7/"));
  EXPECT_THAT(out.str(), Not(HasSubstr("step 8/")));
}

TEST(ProgressPrinterTest, ATerminalLineIsRedrawnAtMostTenTimesASecond) {
  std::ostringstream out;
  FakeClock clock;
  clock.Advance(absl::Seconds(100));
  ProgressPrinter::Options options;
  options.is_terminal = true;
  options.columns = 21;
  {
    ProgressPrinter printer(options, out, clock);
    printer.Observe(Snapshot(v1::JOB_STATE_RUNNING, 1000));
    for (int step = 1; step <= 25; ++step) {
      printer.Observe(Step(step, 3));
      clock.Advance(absl::Milliseconds(10));
    }
    printer.Observe(Eval(25, 2.5));
  }
  const std::string clear = "\r\x1b[K";
  EXPECT_EQ(out.str(),
            "running\n" + clear + "step 1/1000 [-------" + clear +
                "step 11/1000 [------" + clear + "step 21/1000 [------" +
                clear + "validation after step 25: loss 2.500 nats a token\n" +
                "step 25/1000 [------\n");
}

TEST(ProgressPrinterTest, TheEndErasesTheTerminalLine) {
  std::ostringstream out;
  FakeClock clock;
  ProgressPrinter::Options options;
  options.is_terminal = true;
  options.columns = 14;
  {
    ProgressPrinter printer(options, out, clock);
    printer.Observe(Snapshot(v1::JOB_STATE_RUNNING, 3));
    printer.Observe(Step(3, 3));
    printer.Observe(Event(v1::JOB_STATE_SUCCEEDED, "all steps ran"));
    printer.Observe(Snapshot(v1::JOB_STATE_SUCCEEDED, 3));
  }
  const std::string clear = "\r\x1b[K";
  EXPECT_EQ(out.str(), "running\n" + clear + "step 3/3 [###" + clear);
}

TEST(ProgressPrinterTest, MessagesCannotSteerTheTerminal) {
  std::ostringstream out;
  FakeClock clock;
  ProgressPrinter printer({}, out, clock);
  printer.Observe(Event(v1::JOB_STATE_STOPPING, "why\x1b[2J"));
  EXPECT_EQ(out.str(), "stopping: why\\x1b[2J\n");
}

}  // namespace
}  // namespace weft::client
