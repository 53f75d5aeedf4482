#include "coordinator/http/status_page.h"

#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "weft/v1/cluster_service.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(StatusPageTest, ShowsWorkersAndJobs) {
  v1::GetClusterInfoResponse cluster;
  cluster.set_version("1.2.3");
  cluster.set_workers(2);
  cluster.set_idle_workers(1);
  cluster.set_running_jobs(1);
  cluster.set_queued_jobs(3);
  std::vector<v1::Worker> workers(2);
  workers[0].set_id("w-0");
  workers[0].set_state(v1::WORKER_STATE_BUSY);
  workers[0].set_rank(5);
  workers[0].set_job_id("text-1");
  workers[0].set_host("here");
  workers[1].set_id("w-1");
  workers[1].set_state(v1::WORKER_STATE_IDLE);
  v1::ListJobsResponse jobs;
  v1::Job& job = *jobs.add_jobs();
  job.set_id("text-1");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_step(7);
  job.mutable_spec()->set_steps(30);
  job.set_message("steps run");
  job.mutable_last_step()->set_loss(2.5);
  job.mutable_last_step()->set_tokens(640);
  job.mutable_last_step()->set_step_seconds(0.5);
  job.mutable_last_step()->set_ep_seconds(0.4);
  job.mutable_last_step()->set_ep_exposed_seconds(0.1);
  const std::string page = MakeStatusPage(cluster, workers, jobs);
  EXPECT_THAT(
      page,
      AllOf(HasSubstr("weft 1.2.3: 2 workers attached, 1 idle; 1 jobs run, 3 "
                      "wait\n"),
            HasSubstr("w-0     busy   5     text-1  here\n"),
            HasSubstr("w-1     idle   -     -\n"),
            HasSubstr("text-1  running  7/30  2.5000  1280      75%     steps "
                      "run\n"),
            HasSubstr("<a href=\"/metrics\">"),
            HasSubstr("<a href=\"/healthz\">"), Not(HasSubstr("older"))));
}

TEST(StatusPageTest, EscapesWhatOthersWrote) {
  v1::ListJobsResponse jobs;
  jobs.add_jobs()->set_message("<script>&");
  jobs.set_next_page_token("7");
  const std::string page =
      MakeStatusPage(v1::GetClusterInfoResponse(), {}, jobs);
  EXPECT_THAT(page, AllOf(HasSubstr("0/0   -     -         -       "
                                    "&lt;script&gt;&amp;\n"),
                          Not(HasSubstr("<script")), HasSubstr("older jobs")));
}

TEST(StatusPageTest, JsonHasTheApisMessages) {
  v1::GetClusterInfoResponse cluster;
  cluster.set_version("1.2.3");
  std::vector<v1::Worker> workers(1);
  workers[0].set_id("w-0");
  workers[0].set_state(v1::WORKER_STATE_BUSY);
  workers[0].set_host("quo\"te");
  v1::ListJobsResponse jobs;
  v1::Job& job = *jobs.add_jobs();
  job.set_id("text-1");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.mutable_last_step()->set_loss(2.5);
  ASSERT_OK_AND_ASSIGN(const std::string json,
                       MakeStatusJson(cluster, workers, jobs));
  const nlohmann::json status =
      nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(status.is_object());
  EXPECT_EQ(status["cluster"]["version"], "1.2.3");
  EXPECT_EQ(status["cluster"]["queued_jobs"], 0);
  EXPECT_EQ(status["workers"][0]["host"], "quo\"te");
  EXPECT_EQ(status["workers"][0]["state"], "WORKER_STATE_BUSY");
  EXPECT_EQ(status["jobs"][0]["id"], "text-1");
  EXPECT_EQ(status["jobs"][0]["last_step"]["loss"], 2.5);
  EXPECT_EQ(status["next_page_token"], "");
}

TEST(StatusPageTest, JsonOfAnEmptyClusterIsWhole) {
  ASSERT_OK_AND_ASSIGN(const std::string json, MakeStatusJson({}, {}, {}));
  const nlohmann::json status =
      nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(status.is_object());
  EXPECT_TRUE(status["workers"].empty());
  EXPECT_TRUE(status["jobs"].empty());
}

TEST(StatusPageTest, WhatHasNoJsonIsAnErrorThatNamesIt) {
  v1::ListJobsResponse jobs;
  // Timestamps end with the year 9999.
  jobs.add_jobs()->mutable_create_time()->set_seconds(int64_t{1} << 60);
  EXPECT_THAT(MakeStatusJson({}, {}, jobs),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("no JSON of weft.v1.ListJobsResponse")));
}

}  // namespace
}  // namespace weft::coordinator
