#include "coordinator/http/metrics.h"

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

v1::Job MakeJob(const std::string& id, v1::JobState state) {
  v1::Job job;
  job.set_id(id);
  job.set_state(state);
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

TEST(MetricsTest, EveryMetricIsExposedWithItsHelpAndLabels) {
  Metrics metrics("1.2.3");
  metrics.OnJobState(MakeJob("a", v1::JOB_STATE_RUNNING));
  metrics.OnStep(MakeJob("a", v1::JOB_STATE_RUNNING), MakeStep());
  metrics.OnEval(MakeJob("a", v1::JOB_STATE_RUNNING), v1::EvalMetrics());
  metrics.OnWorker("w", true);
  const std::string text = metrics.ToText();
  for (const MetricSpec& spec : AllMetrics()) {
    EXPECT_THAT(text,
                HasSubstr(absl::StrCat("# HELP ", spec.name, " ", spec.help)));
    EXPECT_THAT(text, HasSubstr(absl::StrCat("# TYPE ", spec.name, " ")));
  }
  EXPECT_THAT(text, HasSubstr("weft_build_info{version=\"1.2.3\"} 1"));
}

TEST(MetricsTest, FollowsAJob) {
  Metrics metrics("");
  metrics.OnJobState(MakeJob("a", v1::JOB_STATE_QUEUED));
  metrics.OnJobState(MakeJob("a", v1::JOB_STATE_RUNNING));
  const v1::Job job = MakeJob("a", v1::JOB_STATE_RUNNING);
  metrics.OnStep(job, MakeStep());
  metrics.OnStep(job, MakeStep());
  const std::string text = metrics.ToText();
  EXPECT_THAT(text, HasSubstr("weft_job_state{job=\"a\",state=\"running\"} 1"));
  EXPECT_THAT(text, HasSubstr("weft_job_state{job=\"a\",state=\"queued\"} 0"));
  EXPECT_THAT(text, HasSubstr("weft_job_step{job=\"a\"} 7"));
  EXPECT_THAT(text, HasSubstr("weft_loss{job=\"a\"} 2.5"));
  EXPECT_THAT(text, HasSubstr("weft_grad_norm{job=\"a\"} 0.75"));
  EXPECT_THAT(text, HasSubstr("weft_steps_total{job=\"a\"} 2"));
  EXPECT_THAT(text, HasSubstr("weft_tokens_total{job=\"a\"} 128"));
  EXPECT_THAT(text, HasSubstr("weft_exposed_comm_seconds_total{job=\"a\","
                              "kind=\"ep\"} 0.125"));
  EXPECT_THAT(text, HasSubstr("weft_hidden_comm_seconds_total{job=\"a\","
                              "kind=\"ep\"} 0.375"));
  EXPECT_THAT(text, HasSubstr("weft_hidden_comm_seconds_total{job=\"a\","
                              "kind=\"fsdp\"} 0.5"));
  EXPECT_THAT(text, HasSubstr("weft_step_duration_seconds_count{job=\"a\"} 2"));
  EXPECT_THAT(text, HasSubstr("le=\"0.35\"} 2"));
}

TEST(MetricsTest, CountersNeverGoDown) {
  Metrics metrics("");
  v1::StepMetrics step = MakeStep();
  step.set_ep_seconds(0);  // less than exposed
  step.set_fsdp_seconds(std::nan(""));
  metrics.OnStep(MakeJob("a", v1::JOB_STATE_RUNNING), step);
  const std::string text = metrics.ToText();
  EXPECT_THAT(text, HasSubstr("weft_hidden_comm_seconds_total{job=\"a\","
                              "kind=\"ep\"} 0"));
  EXPECT_THAT(text, HasSubstr("weft_hidden_comm_seconds_total{job=\"a\","
                              "kind=\"fsdp\"} 0"));
}

TEST(MetricsTest, ForgetsJobsAndWorkers) {
  Metrics metrics("");
  for (const char* id : {"old", "new"}) {
    metrics.OnJobState(MakeJob(id, v1::JOB_STATE_RUNNING));
    metrics.OnStep(MakeJob(id, v1::JOB_STATE_RUNNING), MakeStep());
    metrics.OnEval(MakeJob(id, v1::JOB_STATE_RUNNING), v1::EvalMetrics());
  }
  metrics.OnWorker("w-0", true);
  metrics.OnWorker("w-1", true);
  metrics.OnWorker("w-0", false);
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
  Metrics metrics("");
  EXPECT_THAT(metrics.ToText(), HasSubstr("weft_queued_jobs 0"));
  metrics.OnQueue(3);
  EXPECT_THAT(metrics.ToText(), HasSubstr("weft_queued_jobs 3"));
}

}  // namespace
}  // namespace weft::coordinator
