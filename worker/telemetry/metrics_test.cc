#include "worker/telemetry/metrics.h"

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/device.h"

namespace weft::telemetry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::ProcessFigures SomeFigures() {
  v1::ProcessFigures figures;
  figures.set_resident_bytes(4096);
  figures.set_threads(7);
  return figures;
}

JobLabels Labels(const std::string& job_id) {
  JobLabels labels;
  labels.job_id = job_id;
  labels.name = "tiny";
  labels.rank = 1;
  labels.world = 4;
  labels.ep = 2;
  return labels;
}

v1::StepMetrics Step(int64_t step) {
  v1::StepMetrics metrics;
  metrics.set_step(step);
  metrics.set_loss(2.5);
  metrics.set_tokens(400);
  metrics.set_step_seconds(0.25);
  metrics.set_ep_seconds(0.5);
  metrics.set_ep_exposed_seconds(0.125);
  metrics.set_ep_wire_bytes(1000);
  return metrics;
}

const int64_t kBytes[] = {10, 20, 30, 40, 50};

TEST(WorkerMetricsTest, ShowsTheStepsOfAJob) {
  WorkerMetrics metrics(&SomeFigures);
  metrics.BeginJob(Labels("tiny-1"));
  metrics.RecordStep(Step(1), kBytes);
  metrics.RecordStep(Step(2), kBytes);
  const std::string text = metrics.Scrape();
  EXPECT_THAT(text, HasSubstr("weft_step{job=\"tiny-1\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("weft_loss{job=\"tiny-1\"} 2.5\n"));
  EXPECT_THAT(text, HasSubstr("weft_steps_total{job=\"tiny-1\"} 2\n"));
  // A quarter of 800: summing over the four workers gives the job's tokens.
  EXPECT_THAT(text, HasSubstr("weft_tokens_total{job=\"tiny-1\"} 200\n"));
  EXPECT_THAT(
      text, HasSubstr("weft_step_duration_seconds_sum{job=\"tiny-1\"} 0.5\n"));
  EXPECT_THAT(text, HasSubstr("weft_exposed_comm_seconds_total{job=\"tiny-1\","
                              "stream=\"ep\"} 0.25\n"));
  EXPECT_THAT(text, HasSubstr("weft_comm_bytes_total{job=\"tiny-1\","
                              "stream=\"ep\"} 2000\n"));
  for (int c = 0; c < device::kNumMemoryCategories; ++c) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat(
                          "weft_device_memory_bytes{job=\"tiny-1\",kind=\"",
                          Name(static_cast<device::MemoryCategory>(c)), "\"} ",
                          kBytes[c], "\n")));
  }
  EXPECT_THAT(text, HasSubstr("process_threads 7\n"));
}

TEST(WorkerMetricsTest, NextJobRemovesTheSeriesOfTheOneBefore) {
  WorkerMetrics metrics(&SomeFigures);
  metrics.BeginJob(Labels("tiny-1"));
  metrics.RecordStep(Step(1), kBytes);
  metrics.RecordEval(v1::EvalMetrics());
  metrics.BeginJob(Labels("tiny-2"));
  EXPECT_THAT(metrics.Scrape(), Not(HasSubstr("tiny-1")));
  EXPECT_THAT(metrics.Scrape(), HasSubstr("weft_step{job=\"tiny-2\"} 0\n"));
}

TEST(WorkerMetricsTest, EvalShowsOnlyAfterAValidation) {
  WorkerMetrics metrics(&SomeFigures);
  metrics.BeginJob(Labels("tiny-1"));
  EXPECT_THAT(metrics.Scrape(), Not(HasSubstr("weft_eval_loss{")));
  v1::EvalMetrics eval;
  eval.set_loss(1.5);
  metrics.RecordEval(eval);
  EXPECT_THAT(metrics.Scrape(),
              HasSubstr("weft_eval_loss{job=\"tiny-1\"} 1.5"));
}

// The conventions: a counter ends in _total, only a counter does, and
// everything has a help text.
TEST(WorkerMetricsTest, NamesFollowTheConventions) {
  WorkerMetrics metrics(&SomeFigures);
  metrics.BeginJob(Labels("tiny-1"));
  metrics.RecordStep(Step(1), kBytes);
  metrics.RecordEval(v1::EvalMetrics());
  std::set<std::string> helped;
  int types = 0;
  for (absl::string_view line : absl::StrSplit(metrics.Scrape(), '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() < 4 || words[0] != "#") continue;
    if (words[1] == "HELP") helped.insert(words[2]);
    if (words[1] != "TYPE") continue;
    ++types;
    EXPECT_EQ(absl::EndsWith(words[2], "_total"), words[3] == "counter")
        << line;
    EXPECT_EQ(helped.count(words[2]), 1) << line;
  }
  EXPECT_GE(types, 17);
}

TEST(WorkerMetricsTest, ScrapesWhileJobsComeAndGo) {
  WorkerMetrics metrics(&SomeFigures);
  std::thread scraper([&] {
    for (int i = 0; i < 50; ++i) EXPECT_FALSE(metrics.Scrape().empty());
  });
  for (int i = 0; i < 50; ++i) {
    metrics.BeginJob(Labels("tiny"));
    metrics.RecordStep(Step(i), kBytes);
    metrics.RecordEval(v1::EvalMetrics());
  }
  scraper.join();
}

}  // namespace
}  // namespace weft::telemetry
