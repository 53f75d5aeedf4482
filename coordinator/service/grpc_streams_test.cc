// Streams of the gRPC server: of workers, and of those who watch a job.
#include <grpcpp/grpcpp.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_matchers.h"
#include "coordinator/service/grpc_server.h"
#include "coordinator/service/grpc_server_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/rules/test_jobs.h"

namespace weft::coordinator {
namespace {

using schedule::MakeLegalJob;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

TEST_F(GrpcServerTest, AWorkerThatEndsItsStreamHasLeft) {
  auto worker = Attach("w-0");
  const v1::Job job = Submit(MakeLegalJob(1, 1));
  Start(*worker);
  worker->Leave();
  EXPECT_EQ(Await(job.id(), v1::JOB_STATE_FAILED).message(),
            "rank 0 (worker w-0) was lost: it ended its stream");
  EXPECT_TRUE(worker->Finish().ok());
  AwaitNews("w-0 is forgotten");
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

}  // namespace
}  // namespace weft::coordinator
