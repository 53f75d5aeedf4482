#include "coordinator/http/metrics.h"

#include <atomic>
#include <cmath>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/shape.h"
#include "monitoring/exposition.h"
#include "monitoring/process_metrics.h"
#include "schedule/flops.h"
#include "schedule/rules/test_jobs.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

v1::Job MakeJob(const std::string& id, v1::JobState state) {
  v1::Job job;
  job.set_id(id);
  job.set_state(state);
  *job.mutable_spec() = schedule::MakeLegalJob(2, 2);
  job.mutable_spec()->set_steps(30);
  // The second of three decoder layers has no experts.
  job.mutable_spec()->mutable_model()->set_num_layers(3);
  job.mutable_spec()->mutable_model()->add_dense_layers(1);
  return job;
}

v1::Worker MakeWorker(const std::string& id, v1::WorkerState state) {
  v1::Worker worker;
  worker.set_id(id);
  worker.set_state(state);
  worker.set_device("cpu");
  return worker;
}

// A legal job in bf16 that runs on two workers.
v1::Job MakePlacedJob() {
  v1::Job job = MakeJob("a", v1::JOB_STATE_RUNNING);
  *job.mutable_spec() = schedule::MakeLegalJob(2, 2);
  job.mutable_spec()->mutable_precision()->set_compute(v1::NUMBER_FORMAT_BF16);
  job.add_workers("w-0");
  job.add_workers("w-1");
  return job;
}

v1::StepMetrics MakeStep() {
  v1::StepMetrics step;
  step.set_step(7);
  step.set_loss(2.5);
  step.set_grad_norm(0.75);
  step.set_tokens(64);
  step.set_step_seconds(0.3);
  step.set_ep_seconds(0.25);
  step.set_ep_exposed_seconds(0.0625);
  step.set_fsdp_seconds(0.5);
  step.set_fsdp_exposed_seconds(0.25);
  step.set_gather_seconds(0.375);
  step.set_gather_exposed_seconds(0.125);
  step.add_layer_imbalances(1.5);
  step.add_layer_imbalances(2);
  v1::RouterLoss& loss = *step.add_router_losses();
  loss.set_layer(2);
  loss.set_name("aux");
  loss.set_value(0.25);
  v1::MemoryUse& use = *step.add_memory();
  use.set_category("gradients");
  use.set_bytes(512);
  step.set_ep_wire_bytes(1000);
  return step;
}

// The rules of Prometheus' naming guide that promtool checks.
TEST(MetricsTest, NamesFollowTheConventions) {
  std::set<std::string> names;
  for (const MetricSpec& spec : AllMetrics()) {
    SCOPED_TRACE(spec.name);
    const std::string name = spec.name;
    EXPECT_TRUE(names.insert(name).second);
    EXPECT_TRUE(absl::StartsWith(name, "weft_"));
    EXPECT_EQ(absl::EndsWith(name, "_total"),
              spec.type == MetricType::kCounter);
    for (const char* unit : {"_ms", "_milliseconds", "_mb", "_kb", "_us"}) {
      EXPECT_FALSE(absl::StrContains(name, unit));
    }
    EXPECT_FALSE(std::string(spec.help).empty());
  }
}

TEST(MetricsTest, EveryMetricIsExposedAsItIsDeclared) {
  FakeClock clock;
  Metrics metrics("1.2.3", clock);
  metrics.OnJobState(MakeJob("waiting", v1::JOB_STATE_QUEUED));
  metrics.OnJobState(MakeJob("a", v1::JOB_STATE_RUNNING));
  metrics.OnStep(MakeJob("a", v1::JOB_STATE_RUNNING), MakeStep());
  metrics.OnEval(MakeJob("a", v1::JOB_STATE_RUNNING), v1::EvalMetrics());
  metrics.OnWorker(MakeWorker("w-0", v1::WORKER_STATE_IDLE));
  v1::Worker gpu = MakeWorker("w-1", v1::WORKER_STATE_IDLE);
  gpu.set_device("cuda:0 NVIDIA H200");
  metrics.OnWorker(gpu);
  gpu.set_id("w-0");
  metrics.OnWorker(gpu);
  metrics.OnStep(MakePlacedJob(), MakeStep());
  const std::string text = metrics.ToText();
  EXPECT_THAT(monitoring::DifferencesFrom(
                  monitoring::WithProcessMetrics(AllMetrics()), text),
              IsEmpty());
  EXPECT_THAT(text, HasSubstr("weft_build_info{version=\"1.2.3\"} 1"));
}

TEST(MetricsTest, FollowsAJob) {
  FakeClock clock;
  Metrics metrics("", clock);
  metrics.OnJobState(MakeJob("a", v1::JOB_STATE_QUEUED));
  metrics.OnJobState(MakeJob("a", v1::JOB_STATE_RUNNING));
  const v1::Job job = MakeJob("a", v1::JOB_STATE_RUNNING);
  metrics.OnStep(job, MakeStep());
  metrics.OnStep(job, MakeStep());
  const std::string text = metrics.ToText();
  EXPECT_THAT(text,
              HasSubstr("weft_job_state{job_id=\"a\",state=\"running\"} 1"));
  EXPECT_THAT(text,
              HasSubstr("weft_job_state{job_id=\"a\",state=\"queued\"} 0"));
  EXPECT_THAT(text, HasSubstr("weft_job_step{job_id=\"a\"} 7"));
  EXPECT_THAT(text, HasSubstr("weft_loss{job_id=\"a\"} 2.5"));
  EXPECT_THAT(text, HasSubstr("weft_grad_norm{job_id=\"a\"} 0.75"));
  EXPECT_THAT(text, HasSubstr("weft_steps_total{job_id=\"a\"} 2"));
  EXPECT_THAT(text, HasSubstr("weft_tokens_total{job_id=\"a\"} 128"));
  EXPECT_THAT(text, HasSubstr("weft_exposed_comm_seconds_total{cause=\"ep\","
                              "job_id=\"a\"} 0.125"));
  EXPECT_THAT(text, HasSubstr("weft_hidden_comm_seconds_total{cause=\"ep\","
                              "job_id=\"a\"} 0.375"));
  EXPECT_THAT(text, HasSubstr("weft_hidden_comm_seconds_total{cause=\"gather\","
                              "job_id=\"a\"} 0.5"));
  EXPECT_THAT(text,
              HasSubstr("weft_exposed_comm_seconds_total{cause=\"gather\","
                        "job_id=\"a\"} 0.25"));
  // What is left of both, of one step: 0.125 busy, all of it exposed.
  EXPECT_THAT(text,
              HasSubstr("weft_exposed_comm_seconds_total{cause=\"reduce\","
                        "job_id=\"a\"} 0.25"));
  EXPECT_THAT(text, HasSubstr("weft_hidden_comm_seconds_total{cause=\"reduce\","
                              "job_id=\"a\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("weft_job_target_steps{job_id=\"a\"} 30"));
  EXPECT_THAT(text, HasSubstr("weft_device_memory_bytes{category=\"gradients\","
                              "job_id=\"a\"} 512"));
  EXPECT_THAT(text, HasSubstr("weft_router_loss{job_id=\"a\",layer=\"2\","
                              "loss=\"aux\"} 0.25"));
  EXPECT_THAT(text,
              HasSubstr("weft_step_duration_seconds_count{job_id=\"a\"} 2"));
  EXPECT_THAT(text, HasSubstr("le=\"0.35\"} 2"));
}

// Else a rate would miss what the first scrape finds already counted.
TEST(MetricsTest, CountersOfAJobBeginAtZeroBeforeItsFirstStep) {
  FakeClock clock;
  Metrics metrics("", clock);
  metrics.OnJobState(MakeJob("a", v1::JOB_STATE_QUEUED));
  const std::string text = metrics.ToText();
  for (const char* series :
       {"steps_total{job_id=\"a\"}", "tokens_total{job_id=\"a\"}",
        "step_duration_seconds_sum{job_id=\"a\"}",
        "exposed_comm_seconds_total{cause=\"ep\",job_id=\"a\"}",
        "exposed_comm_seconds_total{cause=\"gather\",job_id=\"a\"}",
        "hidden_comm_seconds_total{cause=\"reduce\",job_id=\"a\"}",
        "comm_bytes_total{cause=\"ep\",job_id=\"a\"}"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\nweft_", series, " 0\n")));
  }
  // What a step says is not there before it.
  EXPECT_THAT(text, Not(HasSubstr("\nweft_loss{")));
  metrics.OnStep(MakeJob("a", v1::JOB_STATE_RUNNING), MakeStep());
  metrics.OnJobState(MakeJob("a", v1::JOB_STATE_SUCCEEDED));
  EXPECT_THAT(metrics.ToText(),
              HasSubstr("\nweft_steps_total{job_id=\"a\"} 1\n"));
}

TEST(MetricsTest, CountersNeverGoDown) {
  FakeClock clock;
  Metrics metrics("", clock);
  v1::StepMetrics step = MakeStep();
  step.set_ep_seconds(0);  // less than exposed
  step.set_fsdp_seconds(std::nan(""));
  metrics.OnStep(MakeJob("a", v1::JOB_STATE_RUNNING), step);
  const std::string text = metrics.ToText();
  EXPECT_THAT(text, HasSubstr("weft_hidden_comm_seconds_total{cause=\"ep\","
                              "job_id=\"a\"} 0"));
  EXPECT_THAT(text, HasSubstr("weft_hidden_comm_seconds_total{cause=\"reduce\","
                              "job_id=\"a\"} 0"));
}

TEST(MetricsTest, ImbalanceIsOfLayersWithExperts) {
  FakeClock clock;
  Metrics metrics("", clock);
  metrics.OnStep(MakeJob("a", v1::JOB_STATE_RUNNING), MakeStep());
  const std::string text = metrics.ToText();
  const std::string series = "weft_expert_imbalance_ratio{job_id=\"a\",layer=";
  EXPECT_THAT(text, HasSubstr(series + "\"0\"} 1.5\n"));
  EXPECT_THAT(text, HasSubstr(series + "\"2\"} 2\n"));
  EXPECT_THAT(text, Not(HasSubstr(series + "\"1\"")));
}

TEST(MetricsTest, ProgressIsTheTimeOfTheLastStepOrState) {
  FakeClock clock(absl::FromUnixSeconds(1000));
  Metrics metrics("", clock);
  const v1::Job job = MakeJob("a", v1::JOB_STATE_RUNNING);
  const std::string series =
      "weft_job_last_progress_timestamp_seconds{job_id=\"a\"} ";
  metrics.OnJobState(job);
  EXPECT_THAT(metrics.ToText(), HasSubstr(series + "1000\n"));
  clock.Advance(absl::Milliseconds(1500));
  metrics.OnStep(job, MakeStep());
  EXPECT_THAT(metrics.ToText(), HasSubstr(series + "1001.5\n"));
  clock.Advance(absl::Seconds(1));
  metrics.OnEval(job, v1::EvalMetrics());
  EXPECT_THAT(metrics.ToText(), HasSubstr(series + "1002.5\n"));
}

TEST(MetricsTest, UtilizationIsKnownWhereThePeakOfEveryDeviceIs) {
  FakeClock clock;
  Metrics metrics("", clock);
  const v1::Job job = MakePlacedJob();
  v1::Worker gpu = MakeWorker("w-0", v1::WORKER_STATE_BUSY);
  gpu.set_device("cuda:0 NVIDIA H200");
  metrics.OnWorker(gpu);
  metrics.OnWorker(MakeWorker("w-1", v1::WORKER_STATE_BUSY));
  const std::string series =
      "weft_model_flops_utilization_ratio{job_id=\"a\"} ";
  metrics.OnStep(job, MakeStep());
  EXPECT_THAT(metrics.ToText(), Not(HasSubstr(series)));

  gpu.set_id("w-1");
  metrics.OnWorker(gpu);
  metrics.OnStep(job, MakeStep());
  const std::string text = metrics.ToText();
  const size_t found = text.find(series);
  ASSERT_NE(found, std::string::npos) << text;
  const double flops =
      schedule::TrainingFlopsOf(model::ShapeOf(job.spec())).total();
  EXPECT_DOUBLE_EQ(std::stod(text.substr(found + series.size())),
                   64 * flops / 0.3 / (2 * 989.4e12));
}

TEST(MetricsTest, RestartsOfAWorkerAddUp) {
  FakeClock clock;
  Metrics metrics("", clock);
  v1::Worker worker = MakeWorker("w-0", v1::WORKER_STATE_IDLE);
  const std::string series = "weft_worker_restarts_total{worker=\"w-0\"} ";
  metrics.OnWorker(worker);
  EXPECT_THAT(metrics.ToText(), HasSubstr(series + "0\n"));
  worker.set_restarts(2);
  metrics.OnWorker(worker);
  worker.set_state(v1::WORKER_STATE_LOST);
  metrics.OnWorker(worker);
  EXPECT_THAT(metrics.ToText(), HasSubstr(series + "2\n"));
}

TEST(MetricsTest, CountsRecordsThatWereNotWritten) {
  FakeClock clock;
  Metrics metrics("", clock);
  EXPECT_THAT(metrics.ToText(), HasSubstr("weft_record_errors_total 0\n"));
  metrics.CountRecordError();
  EXPECT_THAT(metrics.ToText(), HasSubstr("weft_record_errors_total 1\n"));
}

// Steps of 64 tokens that take 0.3 s: a scrape between the two would see
// others.
TEST(MetricsTest, AScrapeSeesAllOfAStepOrNothing) {
  FakeClock clock;
  Metrics metrics("", clock);
  const v1::Job job = MakeJob("a", v1::JOB_STATE_RUNNING);
  metrics.OnStep(job, MakeStep());
  std::atomic<bool> is_done{false};
  std::thread steps([&] {
    for (int i = 0; i < 2000; ++i) metrics.OnStep(job, MakeStep());
    is_done = true;
  });
  const auto value = [](const std::string& text, const std::string& series) {
    return std::stod(text.substr(text.find(series) + series.size()));
  };
  while (!is_done) {
    const std::string text = metrics.ToText();
    const double count = value(text, "weft_steps_total{job_id=\"a\"} ");
    EXPECT_EQ(value(text, "weft_tokens_total{job_id=\"a\"} "), 64 * count);
    EXPECT_EQ(value(text, "weft_step_duration_seconds_count{job_id=\"a\"} "),
              count);
  }
  steps.join();
}

TEST(MetricsTest, ForgetsJobsAndWorkers) {
  FakeClock clock;
  Metrics metrics("", clock);
  for (const char* id : {"old", "new"}) {
    metrics.OnJobState(MakeJob(id, v1::JOB_STATE_RUNNING));
    metrics.OnStep(MakeJob(id, v1::JOB_STATE_RUNNING), MakeStep());
    metrics.OnEval(MakeJob(id, v1::JOB_STATE_RUNNING), v1::EvalMetrics());
  }
  metrics.OnWorker(MakeWorker("w-0", v1::WORKER_STATE_IDLE));
  metrics.OnWorker(MakeWorker("w-1", v1::WORKER_STATE_IDLE));
  metrics.OnWorker(MakeWorker("w-0", v1::WORKER_STATE_LOST));
  EXPECT_THAT(metrics.ToText(), HasSubstr("weft_worker_up{worker=\"w-0\"} 0"));
  metrics.OnJobForgotten("old");
  metrics.OnJobForgotten("never seen");
  metrics.OnWorkerForgotten("w-0");
  const std::string text = metrics.ToText();
  EXPECT_THAT(text, Not(HasSubstr("\"old\"")));
  EXPECT_THAT(text, Not(HasSubstr("\"w-0\"")));
  EXPECT_THAT(text, HasSubstr("\"new\""));
  EXPECT_THAT(text, HasSubstr("weft_worker_up{worker=\"w-1\"} 1"));
}

TEST(MetricsTest, ShowsTheQueue) {
  FakeClock clock;
  Metrics metrics("", clock);
  EXPECT_THAT(metrics.ToText(), HasSubstr("weft_queued_jobs 0"));
  metrics.OnQueue(3);
  EXPECT_THAT(metrics.ToText(), HasSubstr("weft_queued_jobs 3"));
}

TEST(MetricsTest, OldestQueuedJobIsTheFirstThatWasSubmittedOfThoseThatWait) {
  FakeClock clock;
  Metrics metrics("", clock);
  const auto move = [&](const std::string& id, v1::JobState state,
                        int64_t submitted) {
    v1::Job job = MakeJob(id, state);
    job.mutable_create_time()->set_seconds(submitted);
    job.mutable_create_time()->set_nanos(500000000);
    metrics.OnJobState(job);
  };
  const std::string series = "\nweft_oldest_queued_job_timestamp_seconds";
  EXPECT_THAT(metrics.ToText(), Not(HasSubstr(series)));
  move("second", v1::JOB_STATE_QUEUED, 2000);
  move("first", v1::JOB_STATE_QUEUED, 1000);
  EXPECT_THAT(metrics.ToText(), HasSubstr(series + " 1000.5\n"));
  move("first", v1::JOB_STATE_STARTING, 1000);
  EXPECT_THAT(metrics.ToText(), HasSubstr(series + " 2000.5\n"));
  move("second", v1::JOB_STATE_CANCELLED, 2000);
  EXPECT_THAT(metrics.ToText(), Not(HasSubstr(series)));
  move("third", v1::JOB_STATE_QUEUED, 3000);
  EXPECT_THAT(metrics.ToText(), HasSubstr(series + " 3000.5\n"));
}

}  // namespace
}  // namespace weft::coordinator
