#include "coordinator/service/grpc_server.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/status_matchers.h"
#include "coordinator/service/grpc_server_fixture.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "schedule/rules/job_rules.h"
#include "schedule/rules/test_jobs.h"

namespace weft::coordinator {
namespace {

using schedule::MakeJobWith;
using schedule::MakeLegalJob;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST_F(GrpcServerTest, ARefusedJobListsAllViolationsAndChangesNothing) {
  Submit(MakeLegalJob());
  const std::string before = StoreBytes();
  v1::Job job;
  const grpc::Status status = client_->Submit(
      MakeJobWith("model { hidden_size: -1 moe { shared_expert_gate: true } } "
                  "parallel { ep: 3 } steps: -5"),
      &job, "request-1");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("5 rules are broken"));
  std::vector<std::string> fields;
  const google::rpc::BadRequest bad_request = BadRequestOf(status);
  for (const auto& violation : bad_request.field_violations()) {
    fields.push_back(violation.field());
    EXPECT_THAT(violation.description(), HasSubstr(violation.field()));
  }
  EXPECT_THAT(fields, UnorderedElementsAre("model.hidden_size", "parallel.ep",
                                           "parallel.ep", "steps",
                                           "model.moe.shared_expert_gate"));
  EXPECT_EQ(StoreBytes(), before);
}

// All violations of a job that breaks every range still fit the trailers of a
// call, whose size a client limits to 8 KiB unless told otherwise.
TEST_F(GrpcServerTest, TheWorstJobIsRefusedWithAllItsViolations) {
  v1::TrainingJob spec;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "name: 'NO' model { mlp_activation: 9 moe { top_k_normalization: 9 } } "
      "fsdp { strategy: 9 } schedule { order: 9 } optimizer { kind: 9 "
      "wsd_shape: 9 decay: 9 } loss { normalization: 9 } precision { compute: "
      "9 gradients: 9 }",
      &spec));
  for (const schedule::RangeRule& rule : schedule::RangeRules()) {
    schedule::SetNumber(&spec, rule.field, -1);
  }
  v1::Job job;
  const grpc::Status status = client_->Submit(spec, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  // The ranges, ten enums, the name and the prefix at least.
  EXPECT_GE(BadRequestOf(status).field_violations_size(),
            schedule::RangeRules().size() + 12);
}

TEST_F(GrpcServerTest, TakesMessagesOfManyMegabytes) {
  v1::Job job;
  v1::TrainingJob spec = MakeLegalJob();
  spec.mutable_data()->set_prefix(std::string(20 << 20, 'x'));
  const grpc::Status status = client_->Submit(spec, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(BadRequestOf(status).field_violations(0).field(), "data.prefix");
}

TEST_F(GrpcServerTest, SubmitsGetsListsAndCancels) {
  const v1::Job job = Submit(MakeLegalJob());
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(client_->Get(job.id()).spec().steps(), 3);
  v1::ListJobsResponse list;
  client_->Call([&](grpc::ClientContext* context) {
    return client_->jobs().ListJobs(context, v1::ListJobsRequest(), &list);
  });
  ASSERT_EQ(list.jobs_size(), 1);
  v1::CancelJobRequest cancel;
  cancel.set_job_id(job.id());
  v1::CancelJobResponse cancelled;
  const auto call = [&](grpc::ClientContext* context) {
    return client_->jobs().CancelJob(context, cancel, &cancelled);
  };
  EXPECT_TRUE(client_->Call(call).ok());
  EXPECT_EQ(cancelled.job().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(client_->Call(call).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  cancel.set_job_id("nobody");
  EXPECT_EQ(client_->Call(call).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(GrpcServerTest, ARequestWithoutAJobNamesTheField) {
  v1::ValidateJobResponse response;
  const grpc::Status status = client_->Call([&](grpc::ClientContext* context) {
    return client_->jobs().ValidateJob(context, v1::ValidateJobRequest(),
                                       &response);
  });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(BadRequestOf(status).field_violations(0).field(), "job");
}

TEST_F(GrpcServerTest, ValidatesAndShowsPlansWithoutQueueing) {
  v1::ValidateJobRequest validate;
  *validate.mutable_job() = MakeJobWith("batch { global_batch: 2 }");
  v1::ValidateJobResponse validated;
  EXPECT_TRUE(client_
                  ->Call([&](grpc::ClientContext* context) {
                    return client_->jobs().ValidateJob(context, validate,
                                                       &validated);
                  })
                  .ok());
  EXPECT_EQ(validated.warnings_size(), 1);
  EXPECT_EQ(validated.plan().ops(), 12);
  EXPECT_EQ(dispatcher_->ClusterInfo().queued_jobs(), 0);

  v1::GetPlanRequest request;
  v1::GetPlanResponse plan;
  const auto get_plan = [&](grpc::ClientContext* context) {
    return client_->jobs().GetPlan(context, request, &plan);
  };
  request.set_job_id(Submit(MakeLegalJob()).id());
  request.set_rank(1);
  EXPECT_TRUE(client_->Call(get_plan).ok());
  EXPECT_EQ(plan.text(), "plan of rank 1");
  request.set_rank(2);
  EXPECT_EQ(client_->Call(get_plan).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.set_job_id("nobody");
  EXPECT_EQ(client_->Call(get_plan).error_code(), grpc::StatusCode::NOT_FOUND);
  request.clear_target();
  const grpc::Status status = client_->Call(get_plan);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(BadRequestOf(status).field_violations(0).field(), "target");
}

// More calls than the server has threads wait for the compiler.
TEST_F(GrpcServerTest, CompilingKeepsNobodyElseWaiting) {
  const v1::Job job = Submit(MakeLegalJob());
  Notification release;
  compiler_.hold = &release;
  std::vector<std::thread> callers;
  for (int i = 0; i < 40; ++i) {
    callers.emplace_back([this] {
      v1::ValidateJobRequest request;
      *request.mutable_job() = MakeLegalJob();
      v1::ValidateJobResponse response;
      EXPECT_TRUE(client_
                      ->Call([&](grpc::ClientContext* context) {
                        return client_->jobs().ValidateJob(context, request,
                                                           &response);
                      })
                      .ok());
    });
  }
  const auto deadline = DeadlineAfter(absl::Milliseconds(500));
  while (std::chrono::steady_clock::now() < deadline && !HasFailure()) {
    EXPECT_EQ(client_->Get(job.id()).id(), job.id());
  }
  release.Notify();
  for (std::thread& caller : callers) caller.join();
}

TEST_F(GrpcServerTest, AnErrorFitsTheTrailersOfACall) {
  v1::GetJobRequest request;
  request.set_job_id(std::string(1 << 20, 'x'));
  v1::GetJobResponse response;
  const grpc::Status status = client_->Call([&](grpc::ClientContext* context) {
    return client_->jobs().GetJob(context, request, &response);
  });
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("no job \"xxx"));
}

TEST_F(GrpcServerTest, ShowsTheCluster) {
  auto worker = Attach("w-0");
  v1::GetClusterInfoResponse info;
  client_->Call([&](grpc::ClientContext* context) {
    return client_->cluster().GetClusterInfo(
        context, v1::GetClusterInfoRequest(), &info);
  });
  EXPECT_EQ(info.version(), "1.2.3");
  EXPECT_EQ(info.http_address(), "127.0.0.1:9");
  EXPECT_EQ(info.idle_workers(), 1);
  v1::ListWorkersResponse workers;
  client_->Call([&](grpc::ClientContext* context) {
    return client_->cluster().ListWorkers(context, v1::ListWorkersRequest(),
                                          &workers);
  });
  ASSERT_EQ(workers.workers_size(), 1);
  EXPECT_EQ(workers.workers(0).id(), "w-0");
}

TEST_F(GrpcServerTest, AnswersHealthChecksForEachService) {
  for (const std::string name :
       {"", "weft.v1.JobService", "weft.v1.ClusterService",
        "weft.worker.v1.WorkerControlService", "startup", "readiness",
        "liveness"}) {
    // HealthCheckRequest.service is field 1; SERVING is 1 in field 1.
    const std::string request =
        absl::StrCat("\x0a", std::string(1, name.size()), name);
    EXPECT_EQ(client_->CallRaw("/grpc.health.v1.Health/Check", request),
              "\x08\x01")
        << name;
  }
  EXPECT_EQ(client_->CallRaw("/grpc.health.v1.Health/Check", "\x0a\x01x"),
            absl::StrCat("status ", grpc::StatusCode::NOT_FOUND));
}

TEST_F(GrpcServerTest, WhatIsNotReadyIsAliveAllTheSame) {
  const auto health = [&](const std::string& name) {
    return client_->CallRaw(
        "/grpc.health.v1.Health/Check",
        absl::StrCat("\x0a", std::string(1, name.size()), name));
  };
  server_->SetReady(false);
  EXPECT_EQ(health("readiness"), "\x08\x02");
  EXPECT_EQ(health("liveness"), "\x08\x01");
  EXPECT_EQ(health("startup"), "\x08\x01");
  server_->SetReady(true);
  server_->SetAlive(false);
  EXPECT_EQ(health("readiness"), "\x08\x01");
  EXPECT_EQ(health("liveness"), "\x08\x02");
}

TEST_F(GrpcServerTest, ReflectsItsServices) {
  // ServerReflectionRequest.list_services is field 7.
  const std::string services = client_->CallRaw(
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      std::string("\x3a\x01*", 3));
  EXPECT_THAT(services, HasSubstr("weft.v1.JobService"));
  EXPECT_THAT(services, HasSubstr("weft.v1.ClusterService"));
  EXPECT_THAT(services, HasSubstr("weft.worker.v1.WorkerControlService"));
}

// Who calls by reflection can call this one, too.
TEST_F(GrpcServerTest, ReflectionDescribesTheHealthService) {
  // ServerReflectionRequest.file_containing_symbol is field 4.
  const std::string symbol = "grpc.health.v1.Health";
  const std::string file = client_->CallRaw(
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      absl::StrCat("\x22", std::string(1, symbol.size()), symbol));
  EXPECT_THAT(file, HasSubstr("HealthCheckRequest"));
}

TEST_F(GrpcServerTest, ATakenPortIsRefused) {
  GrpcServer::Options options;
  options.listen_address = server_->address();
  options.dispatcher = dispatcher_.get();
  options.compiler = &compiler_;
  EXPECT_THAT(
      GrpcServer::Start(options),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr(server_->address())));
}

}  // namespace
}  // namespace weft::coordinator
