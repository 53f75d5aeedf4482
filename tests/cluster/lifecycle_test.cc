// Jobs one after another, cancelled, refused and broken, on long-lived daemons.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/jobs.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LifecycleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Start(4, {}));
    ASSERT_OK_AND_ASSIGN(data_, WriteDataset("text", 20000, 29, false));
  }

  v1::TrainingJob Job(int steps) {
    ClusterJob options;
    options.data = data_;
    options.steps = steps;
    return MakeJob(options);
  }

  // A job that goes on until it is stopped.
  v1::TrainingJob EndlessJob() {
    v1::TrainingJob job = Job(1000000);
    job.mutable_model()->mutable_moe()->set_expert_hidden_size(256);
    return job;
  }

  void ExpectRuns(const v1::TrainingJob& job) {
    ASSERT_OK_AND_ASSIGN(JobResult result, cluster_->Run(job));
    EXPECT_EQ(result.job.state(), v1::JOB_STATE_SUCCEEDED)
        << result.job.message();
    EXPECT_EQ(result.steps.size(), job.steps());
  }

  // Submits an endless job and returns its id after its second step.
  std::string StartEndless() {
    const std::string id = *cluster_->Submit(EndlessJob());
    EXPECT_TRUE(Cluster::Await([&] { return cluster_->Get(id)->step() >= 2; },
                               absl::Seconds(60)));
    return id;
  }

  std::vector<v1::ProcessFigures> IdleFigures() {
    EXPECT_TRUE(
        Cluster::Await([&] { return cluster_->AllIdle(); }, absl::Seconds(20)));
    std::vector<v1::ProcessFigures> figures;
    const absl::StatusOr<std::vector<v1::Worker>> workers = cluster_->Workers();
    EXPECT_OK(workers.status());
    if (!workers.ok()) return figures;
    for (const v1::Worker& worker : *workers) {
      figures.push_back(worker.figures());
    }
    return figures;
  }

  std::unique_ptr<Cluster> cluster_;
  std::string data_;
};

TEST_F(LifecycleTest, AJobRunsAndShowsItsSteps) {
  v1::TrainingJob job = Job(3);
  job.mutable_data()->set_validation_fraction(0.1);
  job.mutable_eval()->set_batches(2);
  ASSERT_OK_AND_ASSIGN(JobResult result, cluster_->Run(job));
  EXPECT_EQ(result.job.state(), v1::JOB_STATE_SUCCEEDED)
      << result.job.message();
  ASSERT_EQ(result.steps.size(), 3);
  for (const v1::StepMetrics& step : result.steps) {
    EXPECT_TRUE(std::isfinite(step.loss()));
    EXPECT_GT(step.grad_norm(), 0);
    EXPECT_EQ(step.tokens(), 8 * 12);
    EXPECT_GT(step.ep_wire_bytes(), 0);
    EXPECT_GE(step.ep_seconds(), step.ep_exposed_seconds());
  }
  EXPECT_GT(result.job.last_eval().tokens(), 0);
  EXPECT_NEAR(result.job.last_eval().loss(), std::log(29), 1);
  EXPECT_EQ(result.job.workers_size(), 4);
}

TEST_F(LifecycleTest, DaemonsReturnToTheirBaselineJobAfterJob) {
  // The first job makes what stays for good: lazily loaded code and pools.
  ExpectRuns(Job(2));
  const std::vector<v1::ProcessFigures> before = IdleFigures();
  for (int i = 0; i < 3; ++i) ExpectRuns(Job(3));
  const std::string cancelled = StartEndless();
  ASSERT_OK(cluster_->Cancel(cancelled));
  ASSERT_OK_AND_ASSIGN(JobResult result, cluster_->Follow(cancelled));
  EXPECT_EQ(result.job.state(), v1::JOB_STATE_CANCELLED);
  // Heartbeats bring figures twice a second; a new one must show the baseline.
  auto at_baseline = [&] {
    const std::vector<v1::ProcessFigures> now = IdleFigures();
    for (int i = 0; i < now.size(); ++i) {
      // The allocator keeps a few pages of its own: 8 MiB.
      if (now[i].device_bytes() != 0 ||
          now[i].threads() != before[i].threads() ||
          now[i].open_fds() != before[i].open_fds() ||
          now[i].tcp_sockets() != before[i].tcp_sockets() ||
          now[i].resident_bytes() > before[i].resident_bytes() + (8 << 20)) {
        return false;
      }
    }
    return true;
  };
  EXPECT_TRUE(Cluster::Await(at_baseline, absl::Seconds(20)))
      << before[0].ShortDebugString() << " became "
      << IdleFigures()[0].ShortDebugString();
  ExpectRuns(Job(2));
}

TEST_F(LifecycleTest, AKilledWorkerFailsTheJobAndTheOthersTakeTheNext) {
  const std::string id = StartEndless();
  ASSERT_OK_AND_ASSIGN(v1::Job running, cluster_->Get(id));
  const auto& workers = running.workers();
  const int rank =
      std::find(workers.begin(), workers.end(), "worker-2") - workers.begin();
  const absl::Time killed = absl::Now();
  cluster_->KillWorker(2);
  ASSERT_OK_AND_ASSIGN(JobResult result, cluster_->Follow(id));
  // The promise of the coordinator, five seconds, is behaviour: whoever waits
  // for a lost peer needs an end.
  EXPECT_LT(absl::Now() - killed, absl::Seconds(5));
  EXPECT_EQ(result.job.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(
      result.job.message(),
      AllOf(HasSubstr(absl::StrCat("rank ", rank)), HasSubstr("worker-2")));
  v1::TrainingJob next = Job(2);
  next.mutable_parallel()->set_world(2);
  next.mutable_batch()->set_global_batch(4);
  ExpectRuns(next);
}

TEST_F(LifecycleTest, AnIllegalJobIsRefusedWithEveryViolation) {
  ExpectRuns(Job(1));
  v1::SubmitJobRequest request;
  *request.mutable_job() = Job(1);
  request.mutable_job()->mutable_parallel()->set_ep(3);
  request.mutable_job()->mutable_optimizer()->set_learning_rate(-1);
  v1::SubmitJobResponse response;
  grpc::ClientContext context;
  const grpc::Status status =
      cluster_->jobs().SubmitJob(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  google::rpc::BadRequest bad;
  bool found = false;
  for (const auto& detail : details.details()) found |= detail.UnpackTo(&bad);
  ASSERT_TRUE(found);
  std::string fields;
  for (const auto& violation : bad.field_violations()) {
    absl::StrAppend(&fields, violation.field(), " ");
  }
  EXPECT_THAT(fields, AllOf(HasSubstr("parallel.ep"),
                            HasSubstr("optimizer.learning_rate")));
  v1::ListJobsResponse list;
  grpc::ClientContext list_context;
  ASSERT_TRUE(cluster_->jobs()
                  .ListJobs(&list_context, v1::ListJobsRequest(), &list)
                  .ok());
  EXPECT_EQ(list.jobs_size(), 1);
}

TEST_F(LifecycleTest, AJobLargerThanTheClusterWaitsAndCanBeCancelled) {
  ClusterJob options;
  options.data = data_;
  options.world = 8;
  options.ep = 2;
  ASSERT_OK_AND_ASSIGN(std::string id, cluster_->Submit(MakeJob(options)));
  ASSERT_OK_AND_ASSIGN(v1::Job job, cluster_->Get(id));
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  EXPECT_THAT(job.message(), HasSubstr("8"));
  ASSERT_OK(cluster_->Cancel(id));
  ASSERT_OK_AND_ASSIGN(job, cluster_->Get(id));
  EXPECT_EQ(job.state(), v1::JOB_STATE_CANCELLED);
  ExpectRuns(Job(1));
}

TEST_F(LifecycleTest, AMissingDatasetFailsTheJobWithItsName) {
  v1::TrainingJob job = Job(1);
  job.mutable_data()->set_prefix(data_ + "-not-there");
  ASSERT_OK_AND_ASSIGN(JobResult result, cluster_->Run(job));
  EXPECT_EQ(result.job.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(result.job.message(), HasSubstr("not-there"));
  ExpectRuns(Job(1));
}

}  // namespace
}  // namespace weft::testing
