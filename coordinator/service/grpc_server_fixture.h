// A coordinator's gRPC server with a dispatcher and a store of its own, and a
// client to it.
#ifndef WEFT_COORDINATOR_SERVICE_GRPC_SERVER_FIXTURE_H_
#define WEFT_COORDINATOR_SERVICE_GRPC_SERVER_FIXTURE_H_

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

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "coordinator/core/dispatcher.h"
#include "coordinator/core/test_fakes.h"
#include "coordinator/service/grpc_server.h"
#include "coordinator/service/test_client.h"
#include "coordinator/store/sqlite_store.h"
#include "gtest/gtest.h"

namespace weft::coordinator {

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
    options.observer = &observer_;
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

  // Waits until this is the last that was told of workers.
  void AwaitNews(const std::string& expected) {
    std::string last;
    const auto deadline = DeadlineAfter(absl::Seconds(30));
    do {
      for (std::string& news : observer_.Take()) last = std::move(news);
      std::this_thread::yield();
    } while (last != expected && std::chrono::steady_clock::now() < deadline);
    EXPECT_EQ(last, expected);
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
  WorkerObserver observer_;
  uint32_t next_random_ = 0x1000;
  std::filesystem::path folder_;
  std::unique_ptr<SqliteStore> store_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<TestClient> client_;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_SERVICE_GRPC_SERVER_FIXTURE_H_
