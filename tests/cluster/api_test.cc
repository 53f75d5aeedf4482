// What a user of the API sees of jobs on a cluster of the shipped binaries.
#include <cmath>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "records/testing/event_reader.h"
#include "tests/cluster/await.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/files.h"
#include "tests/cluster/jobs.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

// One cluster serves all tests: that they follow each other on the same daemons
// is part of what they show.
class ApiTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    absl::StatusOr<std::unique_ptr<Cluster>> cluster = Cluster::Start({});
    ASSERT_OK(cluster.status());
    cluster_ = cluster->release();
    absl::StatusOr<std::string> data =
        WriteDataset("text", 20000, kVocab, /*constant=*/false);
    ASSERT_OK(data.status());
    data_ = new std::string(*data);
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete data_;
  }

  static v1::TrainingJob Job(int steps) {
    ClusterJob options;
    options.data = *data_;
    options.steps = steps;
    return MakeJob(options);
  }

  static void ExpectRuns(const v1::TrainingJob& job) {
    ASSERT_OK_AND_ASSIGN(JobResult result, cluster_->Run(job));
    EXPECT_EQ(result.job.state(), v1::JOB_STATE_SUCCEEDED)
        << result.job.message();
    EXPECT_THAT(result.steps, SizeIs(job.steps()));
  }

  // The fields a refused submission complains about.
  static std::set<std::string> RefusedFields(const v1::TrainingJob& job) {
    v1::SubmitJobRequest request;
    *request.mutable_job() = job;
    v1::SubmitJobResponse response;
    const grpc::Status status =
        cluster_->jobs().SubmitJob(CallContext().get(), request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << status.error_message();
    google::rpc::Status details;
    EXPECT_TRUE(details.ParseFromString(status.error_details()));
    std::set<std::string> fields;
    for (const auto& detail : details.details()) {
      google::rpc::BadRequest bad;
      if (!detail.UnpackTo(&bad)) continue;
      for (const auto& violation : bad.field_violations()) {
        EXPECT_NE(violation.description(), "");
        fields.insert(violation.field());
      }
    }
    return fields;
  }

  static Cluster* cluster_;
  static std::string* data_;
};

Cluster* ApiTest::cluster_ = nullptr;
std::string* ApiTest::data_ = nullptr;

TEST_F(ApiTest, StepsOfAJobReachWhoeverAsks) {
  v1::TrainingJob job = Job(3);
  job.mutable_data()->set_validation_fraction(0.1);
  job.mutable_eval()->set_batches(2);
  job.mutable_output()->set_trace_step(2);
  ASSERT_OK_AND_ASSIGN(JobResult result, cluster_->Run(job));
  ASSERT_EQ(result.job.state(), v1::JOB_STATE_SUCCEEDED)
      << result.job.message();
  EXPECT_THAT(result.job.workers(),
              ElementsAre("worker-0", "worker-1", "worker-2", "worker-3"));
  ASSERT_THAT(result.steps, SizeIs(3));
  for (int i = 0; i < 3; ++i) {
    const v1::StepMetrics& step = result.steps[i];
    EXPECT_EQ(step.step(), i + 1);
    EXPECT_TRUE(std::isfinite(step.loss()));
    EXPECT_GT(step.grad_norm(), 0);
    EXPECT_EQ(step.tokens(), 8 * 12);
    EXPECT_GT(step.ep_wire_bytes(), 0);
    EXPECT_GE(step.ep_seconds(), step.ep_exposed_seconds());
    EXPECT_GT(step.elapsed_seconds(), 0);
  }
  EXPECT_EQ(result.job.first_step().loss(), result.steps.front().loss());
  EXPECT_EQ(result.job.last_step().loss(), result.steps.back().loss());
  EXPECT_GT(result.job.last_eval().tokens(), 0);
  EXPECT_NEAR(result.job.last_eval().loss(), std::log(kVocab), 1);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(ReadFile(absl::StrCat(result.job.artifacts(),
                                      "/trace.step-2.rank-", rank, ".json")),
                HasSubstr("dispatch"));
  }
  // Rank 0's step log says the same, to the bit.
  std::ifstream log(result.job.artifacts() + "/steps.rank-0.jsonl");
  std::string line;
  for (const v1::StepMetrics& step : result.steps) {
    ASSERT_TRUE(std::getline(log, line));
    const size_t loss = line.find("\"loss\":");
    ASSERT_NE(loss, std::string::npos) << line;
    EXPECT_EQ(std::stod(line.substr(loss + 7)), step.loss()) << line;
  }
}

TEST_F(ApiTest, EveryWorkerShowsTheSameLossInItsMetrics) {
  ASSERT_OK_AND_ASSIGN(JobResult result, cluster_->Run(Job(2)));
  ASSERT_THAT(result.steps, SizeIs(2));
  ASSERT_OK_AND_ASSIGN(std::vector<v1::Worker> workers, cluster_->Workers());
  std::set<std::string> lines;
  for (const v1::Worker& worker : workers) {
    const std::string text = HttpGet(worker.http_address(), "/metrics");
    EXPECT_THAT(text, StartsWith("HTTP/1.1 200"));
    const std::string series =
        absl::StrCat("weft_rank_loss{job_id=\"", result.job.id(), "\"} ");
    const size_t begin = text.find(series);
    ASSERT_NE(begin, std::string::npos) << text;
    lines.insert(text.substr(begin, text.find('\n', begin) - begin));
    EXPECT_NEAR(std::stod(text.substr(begin + series.size())),
                result.steps[1].loss(), 1e-12);
    EXPECT_THAT(HttpGet(worker.http_address(), "/healthz"), HasSubstr("ok"));
  }
  EXPECT_THAT(lines, SizeIs(1));
  EXPECT_THAT(HttpGet(cluster_->coordinator_http_address(), "/metrics"),
              AllOf(HasSubstr("weft_loss"), HasSubstr(result.job.id())));
}

TEST_F(ApiTest, WatchBeginsWithASnapshotAndEndsWithOne) {
  ASSERT_OK_AND_ASSIGN(v1::Job job, cluster_->Submit(Job(3)));
  v1::WatchJobRequest request;
  request.set_job_id(job.id());
  const auto context = CallContext(absl::Seconds(60));
  const auto stream = cluster_->jobs().WatchJob(context.get(), request);
  std::vector<v1::WatchJobResponse> updates;
  v1::WatchJobResponse update;
  while (stream->Read(&update)) updates.push_back(update);
  EXPECT_TRUE(stream->Finish().ok());
  ASSERT_GE(updates.size(), 2);
  EXPECT_EQ(updates.front().snapshot().id(), job.id());
  EXPECT_EQ(updates.back().snapshot().state(), v1::JOB_STATE_SUCCEEDED);
  for (size_t i = 1; i < updates.size(); ++i) {
    EXPECT_GE(updates[i].revision(), updates[i - 1].revision());
  }
}

TEST_F(ApiTest, PlanOfAJobIsText) {
  v1::GetPlanRequest request;
  *request.mutable_job() = Job(1);
  v1::GetPlanResponse response;
  ASSERT_TRUE(
      cluster_->jobs().GetPlan(CallContext().get(), request, &response).ok());
  EXPECT_THAT(response.text(),
              AllOf(HasSubstr("layers.0.dispatch"), HasSubstr("gather"),
                    HasSubstr("combine"), HasSubstr("reduce")));
  EXPECT_NE(response.timeline(), "");
  EXPECT_GT(response.summary().ops(), 0);
}

TEST_F(ApiTest, WorkersAreDistinctProcessesAndBusyWithTheJobTheyRun) {
  ASSERT_OK_AND_ASSIGN(v1::Job job, cluster_->Submit(MakeEndlessJob(*data_)));
  ASSERT_OK(cluster_->AwaitJob(
      job.id(), [](const v1::Job& now) { return now.step() >= 1; }));
  ASSERT_OK_AND_ASSIGN(std::vector<v1::Worker> workers, cluster_->Workers());
  std::set<int64_t> pids;
  std::set<int> ranks;
  for (const v1::Worker& worker : workers) {
    EXPECT_EQ(worker.state(), v1::WORKER_STATE_BUSY);
    EXPECT_EQ(worker.job_id(), job.id());
    EXPECT_EQ(worker.device(), "cpu");
    EXPECT_EQ(worker.libraries_size(), 2);
    pids.insert(worker.pid());
    ranks.insert(worker.rank());
  }
  EXPECT_THAT(pids, SizeIs(4));
  EXPECT_THAT(ranks, ElementsAre(0, 1, 2, 3));
  ASSERT_OK(cluster_->Cancel(job.id()));
  ASSERT_OK(cluster_->AwaitJob(job.id(), &HasEnded));
  ASSERT_OK(cluster_->AwaitWorkers(&IsIdle));
}

TEST_F(ApiTest, IllegalJobsAreRefusedWithEveryViolationAndChangeNothing) {
  ASSERT_OK_AND_ASSIGN(std::vector<v1::Job> before, cluster_->List());
  v1::TrainingJob job = Job(1);
  job.mutable_parallel()->set_ep(3);
  job.mutable_optimizer()->set_learning_rate(-1);
  job.set_steps(0);
  EXPECT_THAT(RefusedFields(job),
              AllOf(::testing::Contains(HasSubstr("parallel.ep")),
                    ::testing::Contains(HasSubstr("optimizer.learning_rate")),
                    ::testing::Contains(HasSubstr("steps"))));

  job = Job(1);
  job.mutable_batch()->set_global_batch(7);  // of 4 ranks
  EXPECT_THAT(RefusedFields(job), ElementsAre("batch.global_batch"));

  job = Job(1);
  job.mutable_model()->mutable_moe()->set_top_k(5);  // of 4 experts
  EXPECT_THAT(RefusedFields(job), ElementsAre("model.moe.top_k"));

  EXPECT_THAT(RefusedFields(v1::TrainingJob()), Not(SizeIs(0)));

  ASSERT_OK_AND_ASSIGN(std::vector<v1::Job> after, cluster_->List());
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].SerializeAsString(), before[i].SerializeAsString());
  }
}

TEST_F(ApiTest, JobLargerThanTheClusterWaitsAndCanBeCancelled) {
  ClusterJob options;
  options.data = *data_;
  options.world = 8;
  ASSERT_OK_AND_ASSIGN(v1::Job job, cluster_->Submit(MakeJob(options)));
  ASSERT_OK_AND_ASSIGN(job, cluster_->Get(job.id()));
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  EXPECT_THAT(job.message(), AllOf(HasSubstr("8"), HasSubstr("4")));
  ASSERT_OK(cluster_->Cancel(job.id()));
  ASSERT_OK_AND_ASSIGN(job, cluster_->Get(job.id()));
  EXPECT_EQ(job.state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(job.workers_size(), 0);
  ExpectRuns(Job(1));
}

TEST_F(ApiTest, QueuedJobCanBeCancelledBeforeItsTurn) {
  ASSERT_OK_AND_ASSIGN(v1::Job first, cluster_->Submit(MakeEndlessJob(*data_)));
  ASSERT_OK_AND_ASSIGN(v1::Job second, cluster_->Submit(Job(1)));
  ASSERT_OK_AND_ASSIGN(second, cluster_->Get(second.id()));
  EXPECT_EQ(second.state(), v1::JOB_STATE_QUEUED);
  ASSERT_OK(cluster_->Cancel(second.id()));
  ASSERT_OK_AND_ASSIGN(v1::Job third, cluster_->Submit(Job(1)));
  ASSERT_OK(cluster_->Cancel(first.id()));
  ASSERT_OK_AND_ASSIGN(third, cluster_->AwaitJob(third.id(), &HasEnded));
  EXPECT_EQ(third.state(), v1::JOB_STATE_SUCCEEDED) << third.message();
  ASSERT_OK_AND_ASSIGN(second, cluster_->Get(second.id()));
  EXPECT_EQ(second.state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(ApiTest, MissingDatasetFailsTheJobWithItsNameAndARank) {
  v1::TrainingJob job = Job(1);
  job.mutable_data()->set_prefix(*data_ + "-not-there");
  ASSERT_OK_AND_ASSIGN(JobResult result, cluster_->Run(job));
  EXPECT_EQ(result.job.state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(result.job.message(),
              AllOf(HasSubstr("not-there"), HasSubstr("rank ")));
  ExpectRuns(Job(1));
}

TEST_F(ApiTest, ValidationOnMoreSamplesThanAreHeldOutFailsTheJob) {
  v1::TrainingJob job = Job(1);
  job.mutable_data()->set_validation_fraction(0.1);
  job.mutable_eval()->set_batches(21);
  ASSERT_OK_AND_ASSIGN(JobResult result, cluster_->Run(job));
  EXPECT_EQ(result.job.state(), v1::JOB_STATE_FAILED);
  // 20000 tokens are 1666 samples of 12.
  EXPECT_THAT(
      result.job.message(),
      AllOf(HasSubstr("eval.batches=21 * batch.global_batch=8 is 168 samples"),
            HasSubstr("holds out 167; lower eval.batches to 20")));
  job.mutable_eval()->set_batches(20);
  ExpectRuns(job);
}

// The scalars of an event under the tags that a line of the step log tells of.
std::map<std::string, float> ScalarsOf(const nlohmann::json& line) {
  const auto number = [&](const char* name) { return line[name].get<float>(); };
  if (line["kind"] == "eval") return {{"lm loss validation", number("loss")}};
  return {{"lm loss", number("loss")},
          {"grad-norm", number("grad_norm")},
          {"learning-rate", number("learning_rate")},
          {"iteration-time", number("step_seconds")}};
}

TEST_F(ApiTest, EventFilesTellWhatTheStepLogTells) {
  v1::TrainingJob spec = Job(4);
  spec.mutable_eval()->set_every_steps(2);
  spec.mutable_eval()->set_batches(1);
  spec.mutable_data()->set_validation_fraction(0.1);
  ASSERT_OK_AND_ASSIGN(const JobResult result, cluster_->Run(spec));
  const std::string folder = result.job.artifacts();
  std::vector<std::string> lines;
  std::vector<records::Event> events;
  const auto is_written = [&] {
    lines = absl::StrSplit(ReadFile(folder + "/steps.jsonl"), '\n',
                           absl::SkipEmpty());
    const auto files = ReadFolder(folder + "/tensorboard");
    if (files.size() != 1) return false;
    events =
        records::ReadEvents(folder + "/tensorboard/" + files.begin()->first)
            .value_or(std::vector<records::Event>());
    return lines.size() == 6 && events.size() == 7;  // 4 steps, 2 validations
  };
  ASSERT_TRUE(Await(is_written, absl::Seconds(60)));
  for (size_t i = 0; i < lines.size(); ++i) {
    SCOPED_TRACE(lines[i]);
    const auto line =
        nlohmann::json::parse(lines[i], nullptr, /*allow_exceptions=*/false);
    const records::Event& event = events[i + 1];  // after that of the version
    EXPECT_EQ(event.step, line["step"].get<int64_t>());
    EXPECT_GE(event.wall_time, result.job.start_time().seconds());
    EXPECT_LE(event.wall_time, result.job.end_time().seconds() + 1);
    for (const auto& [tag, value] : ScalarsOf(line)) {
      EXPECT_EQ(event.scalars.at(tag), value) << tag;
    }
  }
}

}  // namespace
}  // namespace weft::testing
