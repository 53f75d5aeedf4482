#include "worker/telemetry/metrics.h"

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/device.h"
#include "monitoring/exposition.h"
#include "monitoring/process_metrics.h"

namespace weft::telemetry {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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
  metrics.set_fsdp_seconds(0.5);
  metrics.set_fsdp_exposed_seconds(0.25);
  metrics.set_gather_seconds(0.25);
  metrics.set_gather_exposed_seconds(0.0625);
  return metrics;
}

const int64_t kBytes[] = {10, 20, 30, 40, 50};

TEST(WorkerMetricsTest, ShowsTheStepsOfAJob) {
  WorkerMetrics metrics;
  metrics.BeginJob(Labels("tiny-1"));
  metrics.RecordStep(Step(1), kBytes);
  metrics.RecordStep(Step(2), kBytes);
  const std::string text = metrics.Scrape();
  EXPECT_THAT(text, HasSubstr("weft_rank_step{job_id=\"tiny-1\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("weft_rank_loss{job_id=\"tiny-1\"} 2.5\n"));
  EXPECT_THAT(text, HasSubstr("weft_rank_steps_total{job_id=\"tiny-1\"} 2\n"));
  // A quarter of 800: summing over the four workers gives the job's tokens.
  EXPECT_THAT(text,
              HasSubstr("weft_rank_tokens_total{job_id=\"tiny-1\"} 200\n"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "weft_rank_step_duration_seconds_sum{job_id=\"tiny-1\"} 0.5\n"));
  EXPECT_THAT(text,
              HasSubstr("weft_rank_exposed_comm_seconds_total{cause=\"ep\","
                        "job_id=\"tiny-1\"} 0.25\n"));
  EXPECT_THAT(text, HasSubstr("weft_rank_comm_bytes_total{cause=\"ep\","
                              "job_id=\"tiny-1\"} 2000\n"));
  for (
      const char* series :
      {"hidden_comm_seconds_total{cause=\"ep\",job_id=\"tiny-1\"} 0.75\n",
       "exposed_comm_seconds_total{cause=\"gather\",job_id=\"tiny-1\"} 0.125\n",
       "hidden_comm_seconds_total{cause=\"gather\",job_id=\"tiny-1\"} 0.375\n",
       "exposed_comm_seconds_total{cause=\"reduce\",job_id=\"tiny-1\"} 0.375\n",
       "hidden_comm_seconds_total{cause=\"reduce\",job_id=\"tiny-1\"} "
       "0.125\n"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("weft_rank_", series)));
  }
  for (int c = 0; c < device::kNumMemoryCategories; ++c) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat(
                          "weft_rank_device_memory_bytes{category=\"",
                          Name(static_cast<device::MemoryCategory>(c)),
                          "\",job_id=\"tiny-1\"} ", kBytes[c], "\n")));
  }
}

TEST(WorkerMetricsTest, NextJobRemovesTheSeriesOfTheOneBefore) {
  WorkerMetrics metrics;
  metrics.BeginJob(Labels("tiny-1"));
  metrics.RecordStep(Step(1), kBytes);
  metrics.RecordEval(v1::EvalMetrics());
  metrics.BeginJob(Labels("tiny-2"));
  EXPECT_THAT(metrics.Scrape(), Not(HasSubstr("tiny-1")));
  EXPECT_THAT(metrics.Scrape(),
              HasSubstr("weft_rank_steps_total{job_id=\"tiny-2\"} 0\n"));
}

// A job loads for minutes: until its first step it has no loss, not one of 0.
TEST(WorkerMetricsTest, AJobHasItsCountersBeforeItsFirstStepAndNothingElse) {
  WorkerMetrics metrics;
  metrics.BeginJob(Labels("tiny-1"));
  const std::string before = metrics.Scrape();
  for (const MetricSpec& spec : AllMetrics()) {
    const bool is_there = spec.type != MetricType::kGauge ||
                          spec.name == std::string(kRankInfo.name);
    const auto series = HasSubstr(
        absl::StrCat("\n", spec.name,
                     spec.type == MetricType::kHistogram ? "_count{" : "{"));
    if (is_there) {
      EXPECT_THAT(before, series);
    } else {
      EXPECT_THAT(before, Not(series));
    }
  }
  metrics.RecordStep(Step(1), kBytes);
  EXPECT_THAT(metrics.Scrape(),
              HasSubstr("weft_rank_loss{job_id=\"tiny-1\"} 2.5\n"));
}

TEST(WorkerMetricsTest, EvalShowsOnlyAfterAValidation) {
  WorkerMetrics metrics;
  metrics.BeginJob(Labels("tiny-1"));
  EXPECT_THAT(metrics.Scrape(), Not(HasSubstr("weft_rank_eval_loss{")));
  v1::EvalMetrics eval;
  eval.set_loss(1.5);
  metrics.RecordEval(eval);
  EXPECT_THAT(metrics.Scrape(),
              HasSubstr("weft_rank_eval_loss{job_id=\"tiny-1\"} 1.5"));
}

// The conventions: a counter ends in _total, only a counter does, and a unit
// ends the name.
TEST(WorkerMetricsTest, NamesFollowTheConventions) {
  std::set<std::string> names;
  for (const MetricSpec& spec : AllMetrics()) {
    SCOPED_TRACE(spec.name);
    EXPECT_TRUE(names.insert(spec.name).second);
    EXPECT_EQ(absl::EndsWith(spec.name, "_total"),
              spec.type == MetricType::kCounter);
    EXPECT_EQ(spec.buckets.empty(), spec.type != MetricType::kHistogram);
    EXPECT_STRNE(spec.help, "");
  }
}

TEST(WorkerMetricsTest, EveryMetricIsExposedAsItIsDeclared) {
  WorkerMetrics metrics;
  metrics.BeginJob(Labels("tiny-1"));
  metrics.RecordStep(Step(1), kBytes);
  metrics.RecordEval(v1::EvalMetrics());
  metrics.SetBuild("1.2.3", "cuda:0 NVIDIA H200", "cuda 13.0, nccl 2.28.3");
  const std::string text = metrics.Scrape();
  EXPECT_THAT(monitoring::DifferencesFrom(
                  monitoring::WithProcessMetrics(AllMetrics()), text),
              IsEmpty());
  EXPECT_THAT(text, HasSubstr("weft_rank_build_info{device=\"cuda:0 NVIDIA "
                              "H200\",libraries=\"cuda 13.0, nccl 2.28.3\","
                              "version=\"1.2.3\"} 1\n"));
}

TEST(WorkerMetricsTest, ScrapesWhileJobsComeAndGo) {
  WorkerMetrics metrics;
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
