#include "coordinator/service/grpc_server.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status_matchers.h"
#include "coordinator/core/dispatcher.h"
#include "coordinator/core/test_fakes.h"
#include "coordinator/service/test_client.h"
#include "coordinator/store/sqlite_store.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "schedule/rules/job_rules.h"
#include "schedule/rules/test_jobs.h"

namespace weft::coordinator {
namespace {

using schedule::MakeJobWith;
using schedule::MakeLegalJob;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class GrpcServerTest : public ::testing::Test {
 protected:
  GrpcServerTest() {
    folder_ = std::filesystem::path(std::getenv("TEST_TMPDIR")) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
    store_ = *SqliteStore::Open(folder_ / "weft.db");
    Dispatcher::Options options;
    options.clock = &clock_;
    options.store = store_.get();
    options.compiler = &compiler_;
    options.artifacts_dir = "/artifacts";
    options.random = [this] { return next_random_++; };
    options.watch.log_size = 8;
    dispatcher_ = *Dispatcher::Create(std::move(options));
    GrpcServer::Options server;
    server.listen_address = "127.0.0.1:0";
    server.dispatcher = dispatcher_.get();
    server.compiler = &compiler_;
    server.version = "1.2.3";
    server.http_address = "127.0.0.1:9";
    server_ = *GrpcServer::Start(server);
    client_ = std::make_unique<TestClient>(server_->address());
  }

  v1::Job Submit(const v1::TrainingJob& spec) {
    v1::Job job;
    const grpc::Status status = client_->Submit(spec, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }

  std::unique_ptr<TestWorker> Attach(const std::string& id) {
    auto worker = std::make_unique<TestWorker>(server_->address(), id);
    EXPECT_EQ(worker->Read().registered().worker_id(), id);
    return worker;
  }

  // Brings a job of one worker to RUNNING.
  void Start(TestWorker& worker) {
    worker.GetReady();
    worker.SayPrepared();
    EXPECT_TRUE(worker.Read().has_start());
  }

  // Waits until the job is in `state`, and returns it.
  v1::Job Await(const std::string& id, v1::JobState state) {
    v1::Job job;
    const auto deadline = DeadlineAfter(absl::Seconds(30));
    do {
      job = client_->Get(id);
      std::this_thread::yield();
    } while (job.state() != state &&
             std::chrono::steady_clock::now() < deadline);
    EXPECT_EQ(job.state(), state) << job.message();
    return job;
  }

  // Every byte of the store's files.
  std::string StoreBytes() {
    std::ostringstream bytes;
    for (const char* name : {"weft.db", "weft.db-wal"}) {
      bytes << std::ifstream(folder_ / name, std::ios::binary).rdbuf();
    }
    return bytes.str();
  }

  // Reads a watch to its end, as text.
  std::vector<std::string> Watch(const std::string& id, int64_t after,
                                 grpc::Status* status) {
    v1::WatchJobRequest request;
    request.set_job_id(id);
    request.set_after_revision(after);
    grpc::ClientContext context;
    SetDeadline(&context);
    auto reader = client_->jobs().WatchJob(&context, request);
    std::vector<std::string> seen;
    v1::WatchJobResponse message;
    while (reader->Read(&message)) {
      if (message.has_snapshot()) {
        seen.push_back(absl::StrCat("snapshot ", message.snapshot().step()));
      } else if (message.has_step()) {
        seen.push_back(absl::StrCat("step ", message.step().step()));
      } else {
        seen.push_back(v1::JobState_Name(message.event().state()));
      }
    }
    *status = reader->Finish();
    return seen;
  }

  FakeClock clock_;
  FakePlanCompiler compiler_;
  uint32_t next_random_ = 0x1000;
  std::filesystem::path folder_;
  std::unique_ptr<SqliteStore> store_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<TestClient> client_;
};

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
      "name: 'NO' model { vocab_size: -1 hidden_size: -1 num_layers: -1 "
      "ffn_hidden_size: -1 norm_epsilon: -1 init_std: -1 mlp_activation: 9 "
      "attention { num_heads: -1 num_kv_heads: -1 head_dim: -1 rope_theta: -1 "
      "} moe { num_experts: -1 top_k: -1 expert_hidden_size: -1 "
      "shared_expert_hidden_size: -1 top_k_normalization: 9 max_rows_factor: "
      "-1 router_loss { aux: -1 sequence_aux: -1 global_aux: -1 z: -1 } } } "
      "data { sequence_length: -1 validation_fraction: -1 } parallel { world: "
      "-1 ep: -1 } batch { global_batch: -1 microbatch: -1 } fsdp { "
      "prefetch_bytes: -1 backward_prefetch_bytes: -1 reduce_bytes: -1 "
      "buffer_slots: -1 strategy: 9 } schedule { order: 9 } optimizer { kind: "
      "9 learning_rate: -1 min_learning_rate: -1 warmup_steps: -1 beta1: -1 "
      "beta2: -1 epsilon: -1 weight_decay: -1 clip_norm: -1 momentum: -1 "
      "wsd_decay_steps: -1 wsd_shape: 9 decay: 9 } steps: -1 eval { "
      "every_steps: -1 batches: -1 } output { trace_step: -1 gradients_step: "
      "-1 tap_step: -1 } limits { collective_timeout_ms: -1 } loss { "
      "normalization: 9 } precision { compute: 9 gradients: 9 } guards { "
      "replica_check_steps: -1 stuck_parameter_steps: -1 }",
      &spec));
  v1::Job job;
  const grpc::Status status = client_->Submit(spec, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  // The ranges, ten enums, the name and the prefix.
  EXPECT_EQ(BadRequestOf(status).field_violations_size(),
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

TEST_F(GrpcServerTest, RunsAJobOnAttachedWorkers) {
  auto w0 = Attach("w-0");
  auto w1 = Attach("w-1");
  const v1::Job job = Submit(MakeLegalJob());
  w0->GetReady();
  w1->GetReady();
  EXPECT_EQ(w1->prepare.binding().rank(), 1);
  w0->SayPrepared();
  w1->SayPrepared();
  EXPECT_TRUE(w0->Read().has_start());
  EXPECT_TRUE(w1->Read().has_start());
  for (int step = 1; step <= 3; ++step) {
    w0->SayStep(step, 2.5);
    w1->SayStep(step, 2.5);
  }
  w0->SayFinished(0, 3);
  w1->SayFinished(0, 3);
  // The watch begins after the submission's revision, so it misses nothing.
  grpc::Status status;
  EXPECT_THAT(Watch(job.id(), job.revision(), &status),
              ElementsAre("JOB_STATE_RUNNING", "step 1", "step 2", "step 3",
                          "JOB_STATE_SUCCEEDED", "snapshot 3"));
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(client_->Get(job.id()).state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(GrpcServerTest, ABrokenStreamFailsTheJobAtOnce) {
  auto worker = Attach("w-0");
  const v1::Job job = Submit(MakeLegalJob(1, 1));
  Start(*worker);
  worker->Kill();
  EXPECT_EQ(Await(job.id(), v1::JOB_STATE_FAILED).message(),
            "rank 0 (worker w-0) was lost: its connection broke");
}

TEST_F(GrpcServerTest, ASilentWorkerLosesItsStream) {
  auto worker = Attach("w-0");
  for (int i = 0; i < 10; ++i) {
    clock_.Advance(absl::Milliseconds(500));
    dispatcher_->Tick();
  }
  EXPECT_EQ(worker->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  Attach("w-0");  // and may come back
}

TEST_F(GrpcServerTest, AttachRefusesWhatItMust) {
  auto worker = Attach("w-0");
  TestWorker twin(server_->address(), "w-0", /*incarnation=*/2);
  EXPECT_EQ(twin.Finish().error_code(), grpc::StatusCode::ALREADY_EXISTS);
  TestWorker newer(server_->address(), "w-1", 1, /*protocol_version=*/2);
  const grpc::Status version = newer.Finish();
  EXPECT_EQ(version.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(version.error_message(), HasSubstr("protocol versions 2 to 2"));
  TestWorker odd(server_->address(), "w/0");
  EXPECT_EQ(odd.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  TestWorker hasty(server_->address());
  worker::v1::AttachRequest heartbeat;
  heartbeat.mutable_heartbeat();
  hasty.Say(heartbeat);
  const grpc::Status status = hasty.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("must be Register"));
  EXPECT_EQ(dispatcher_->ClusterInfo().workers(), 1);
}

TEST_F(GrpcServerTest, AStreamThatDoesNotRegisterEnds) {
  GrpcServer::Options options;
  options.listen_address = "127.0.0.1:0";
  options.dispatcher = dispatcher_.get();
  options.compiler = &compiler_;
  options.register_timeout = absl::Milliseconds(200);
  ASSERT_OK_AND_ASSIGN(auto server, GrpcServer::Start(options));
  TestWorker registered(server->address(), "w-0");
  EXPECT_TRUE(registered.Read().has_registered());
  TestWorker silent(server->address());
  const grpc::Status status = silent.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(status.error_message(), "no Register within 200ms");
  EXPECT_EQ(dispatcher_->ClusterInfo().workers(), 1);
}

TEST_F(GrpcServerTest, AFirstMessageThatDoesNotParseIsRefused) {
  EXPECT_EQ(client_->CallRaw("/weft.worker.v1.WorkerControlService/Attach",
                             "\xff\xff"),
            absl::StrCat("status ", grpc::StatusCode::INVALID_ARGUMENT));
}

TEST_F(GrpcServerTest, RegisteredTellsTheHeartbeats) {
  TestWorker worker(server_->address(), "");
  const worker::v1::AttachResponse message = worker.Read();
  EXPECT_EQ(message.registered().worker_id(), "worker-0");
  EXPECT_EQ(message.registered().protocol_version(), 1);
  EXPECT_EQ(message.registered().heartbeat_interval_ms(), 500);
  EXPECT_EQ(message.registered().heartbeat_timeout_ms(), 4000);
}

TEST_F(GrpcServerTest, AWatchBeginsWithASnapshotAndEndsWithTheJob) {
  auto worker = Attach("w-0");
  const v1::Job job = Submit(MakeLegalJob(1, 1));
  grpc::Status status;
  std::vector<std::string> seen;
  std::thread reader([&] { seen = Watch(job.id(), 0, &status); });
  Start(*worker);
  worker->SayStep(1, 2.5);
  worker->SayStep(2, 2.5);
  worker->SayStep(3, 2.5);
  worker->SayFinished(0, 3);
  reader.join();
  EXPECT_TRUE(status.ok());
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(absl::StartsWith(seen.front(), "snapshot"));
  EXPECT_EQ(seen.back(), "snapshot 3");
  // Later watches see the end; one beyond the log is told so.
  EXPECT_THAT(Watch(job.id(), 0, &status), ElementsAre("snapshot 3"));
  EXPECT_THAT(Watch(job.id(), 1000, &status), IsEmpty());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_THAT(Watch("nobody", 0, &status), IsEmpty());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(GrpcServerTest, AWatcherMayLeave) {
  const v1::Job job = Submit(MakeLegalJob());
  for (int i = 0; i < 20; ++i) {
    v1::WatchJobRequest request;
    request.set_job_id(job.id());
    grpc::ClientContext context;
    SetDeadline(&context);
    auto reader = client_->jobs().WatchJob(&context, request);
    v1::WatchJobResponse message;
    EXPECT_TRUE(reader->Read(&message));
    context.TryCancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  Attach("w-0");
  Attach("w-1");  // news for nobody
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
        "weft.worker.v1.WorkerControlService"}) {
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

TEST_F(GrpcServerTest, ReflectsItsServices) {
  // ServerReflectionRequest.list_services is field 7.
  const std::string services = client_->CallRaw(
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      std::string("\x3a\x01*", 3));
  EXPECT_THAT(services, HasSubstr("weft.v1.JobService"));
  EXPECT_THAT(services, HasSubstr("weft.v1.ClusterService"));
  EXPECT_THAT(services, HasSubstr("weft.worker.v1.WorkerControlService"));
}

TEST_F(GrpcServerTest, ShutdownEndsEveryStream) {
  auto worker = Attach("w-0");
  const v1::Job job = Submit(MakeLegalJob(1, 1));
  Start(*worker);
  const v1::Job queued = Submit(MakeLegalJob(1, 1));
  v1::WatchJobRequest request;
  request.set_job_id(queued.id());
  grpc::ClientContext context;
  SetDeadline(&context);
  auto watch = client_->jobs().WatchJob(&context, request);
  v1::WatchJobResponse message;
  EXPECT_TRUE(watch->Read(&message));
  dispatcher_->Shutdown();
  server_->Shutdown(absl::ZeroDuration());
  // The job goes on after a restart: the code says to watch again.
  while (watch->Read(&message)) {
  }
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(worker->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(store_->GetJob(job.id())->message(),
              HasSubstr("the coordinator was stopped"));
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
