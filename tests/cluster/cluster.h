// A cluster of the shipped binaries, for tests: one coordinator and N workers
// as processes of this machine, and the calls a user would make.
//
//   ASSERT_OK_AND_ASSIGN(auto cluster, Cluster::Start({}));
//   ASSERT_OK_AND_ASSIGN(JobResult result, cluster->Run(job));
//
// Tests that use it have the binaries among their data.
#ifndef WEFT_TESTS_CLUSTER_CLUSTER_H_
#define WEFT_TESTS_CLUSTER_CLUSTER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "tests/cluster/subprocess.h"
#include "weft/v1/cluster_service.grpc.pb.h"
#include "weft/v1/job_service.grpc.pb.h"

namespace weft::testing {

// What a finished job left: its last state, its steps in order, and the bytes
// of every file of final parameters by name.
struct JobResult {
  v1::Job job;
  std::vector<v1::StepMetrics> steps;
  std::map<std::string, std::string> parameters;
};

// A deadline for a call.
std::unique_ptr<grpc::ClientContext> CallContext(
    absl::Duration deadline = absl::Seconds(20));

struct ClusterOptions {
  int workers = 4;                       // named worker-0, worker-1, …
  std::string worker = "worker/worker";  // the binary
  std::vector<std::string> worker_flags;
};

// When a test has failed, the ends of all logs are printed at the end.
//
// Calls return the RPC's code and message as their status.
// Requires: used by one thread.
class Cluster {
 public:
  // Returns when all workers are attached and idle.
  static absl::StatusOr<std::unique_ptr<Cluster>> Start(ClusterOptions options);
  ~Cluster();

  absl::StatusOr<v1::Job> Submit(const v1::TrainingJob& job);
  absl::StatusOr<v1::Job> Get(const std::string& job_id);
  absl::StatusOr<v1::Job> Cancel(const std::string& job_id);
  absl::StatusOr<std::vector<v1::Job>> List();
  absl::StatusOr<std::vector<v1::Worker>> Workers();

  // Follows a job from its submission to its end; `on_step` may be null.
  // DEADLINE_EXCEEDED after `timeout`.
  absl::StatusOr<JobResult> Follow(
      const v1::Job& submitted,
      const std::function<void(const v1::StepMetrics&)>& on_step = nullptr,
      absl::Duration timeout = absl::Seconds(120));
  // Submits and follows.
  absl::StatusOr<JobResult> Run(const v1::TrainingJob& job);

  // Wait until a job, or every worker, is as wanted. The status says how it was
  // last when it takes too long.
  absl::StatusOr<v1::Job> AwaitJob(
      const std::string& job_id,
      const std::function<bool(const v1::Job&)>& is_as_wanted,
      absl::Duration timeout = absl::Seconds(60));
  absl::StatusOr<std::vector<v1::Worker>> AwaitWorkers(
      const std::function<bool(const v1::Worker&)>& is_as_wanted,
      absl::Duration timeout = absl::Seconds(30));

  Subprocess& worker(int index) { return *workers_[index]; }
  // Starts a worker of the same name in place of one that is gone.
  absl::Status RestartWorker(int index);
  // SIGKILL; then the same again at the same address, on the same store.
  absl::Status RestartCoordinator();

  v1::JobService::Stub& jobs() { return *jobs_; }
  v1::ClusterService::Stub& cluster() { return *cluster_; }
  const std::string& address() const { return address_; }  // of the coordinator
  const std::string& coordinator_http_address() const { return http_address_; }

 private:
  explicit Cluster(ClusterOptions options);

  absl::Status StartCoordinator();

  const ClusterOptions options_;
  const std::string folder_;
  std::unique_ptr<Subprocess> coordinator_;
  std::vector<std::unique_ptr<Subprocess>> workers_;
  std::string address_ = "127.0.0.1:0";
  std::string http_address_ = "127.0.0.1:0";
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::ClusterService::Stub> cluster_;
};

bool IsIdle(const v1::Worker& worker);
bool HasEnded(const v1::Job& job);

}  // namespace weft::testing

#endif  // WEFT_TESTS_CLUSTER_CLUSTER_H_
