// All ranks of a job in one process: a thread a rank, CPU devices, loopback
// communicators; with the dispatcher flex and no interceptor, shared memory for
// those of the EP groups.
//
//   LocalWorldOptions options;
//   options.job = MakeJob({});
//   ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
//   ASSERT_OK_AND_ASSIGN(auto results, world->RunSteps(3));
#ifndef WEFT_WORKER_EXEC_TESTING_LOCAL_WORLD_H_
#define WEFT_WORKER_EXEC_TESTING_LOCAL_WORLD_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "kernels/comm/cancellation.h"
#include "kernels/comm/loopback/loopback.h"
#include "kernels/comm/shm/shm.h"
#include "kernels/device/device.h"
#include "schedule/plan.h"
#include "worker/exec/engine.h"
#include "worker/exec/testing/tiny_job.h"

namespace weft::exec::testing {

struct LocalWorldOptions {
  v1::TrainingJob job;
  SyntheticSamples::Kind samples = SyntheticSamples::Kind::kRule;
  ReleasedMemory released_memory = ReleasedMemory::kPoison;
  bool check_live_set = false;
  bool measure_memory = false;
  absl::Duration deadline = absl::Seconds(60);
  comm::LoopbackInterceptor interceptor;
  // Changes the compiled training program; the same on all ranks.
  std::function<void(schedule::Program&)> edit;
  // Runs an edited program whatever the proofs say of it. What is out of range
  // then crashes.
  bool trust_edit = false;
  // Called after each work item on a stream of a rank, on the stream's thread.
  std::function<void(int rank, absl::string_view stream)> finished;
  // Puts another device in the place of each rank's, which is given.
  std::function<std::unique_ptr<device::Device>(
      std::unique_ptr<device::Device> device)>
      wrap_device;
  // Called before each event that a rank's device creates.
  std::function<void(device::Device& device)> creates_event;
  // Called with device memory that a rank has allocated.
  std::function<void(int rank, device::MemoryCategory category,
                     device::Buffer& buffer)>
      allocated;
  // Where the weights start, on all ranks; null: from the job's seed.
  const InitialWeights* initial_weights = nullptr;
  // Clock of each rank; empty: real clocks.
  std::vector<Clock*> clocks;
};

// Requires: called from one thread.
class LocalWorld {
 public:
  static absl::StatusOr<std::unique_ptr<LocalWorld>> Create(
      LocalWorldOptions options);
  ~LocalWorld();

  // Calls `fn` for every rank on a thread of its own. When one rank fails the
  // others are cancelled; returns the error of the one that failed first, at an
  // op of its streams or by what `fn` returned.
  absl::Status ForEachRank(
      const std::function<absl::Status(int rank, Engine& engine)>& fn);

  // Makes the collectives of all ranks fail that wait, or come later. Any
  // thread.
  void Cancel(const absl::Status& why);

  // Runs the next `steps` steps. By rank, then by step.
  absl::StatusOr<std::vector<std::vector<StepResult>>> RunSteps(int steps);

  // Every parameter of the whole model, or the gradient of the latest step of
  // every one that is not frozen, put together from all ranks' files. INTERNAL
  // unless the files hold every element once.
  absl::StatusOr<std::map<std::string, std::vector<float>>> Parameters();
  absl::StatusOr<std::map<std::string, std::vector<float>>> Gradients();

  const schedule::Plan& plan() const { return plan_; }
  Engine& engine(int rank) { return *ranks_[rank]->engine; }
  device::Device& device(int rank) { return *ranks_[rank]->device; }
  int size() const { return ranks_.size(); }

 private:
  struct Rank {
    std::unique_ptr<device::Device> device;
    std::vector<std::unique_ptr<comm::Communicator>> communicators;
    std::unique_ptr<data::SampleSource> samples;
    std::unique_ptr<Engine> engine;
  };

  explicit LocalWorld(LocalWorldOptions options)
      : options_(std::move(options)) {}

  absl::Status CreateSharedMemory();
  absl::Status CreateRank(int rank);
  absl::Status CreateDevice(int rank);
  absl::Status Connect(int rank, Communicators& comms);
  // What all ranks' files hold that `write` writes to a folder: all of
  // `params`.
  absl::StatusOr<std::map<std::string, std::vector<float>>> Collect(
      const std::vector<model::ParamDecl>& params,
      const std::function<absl::Status(Engine& engine,
                                       absl::string_view folder)>& write);
  // Remembers the first rank to fail.
  void NoteFailure(int rank);
  absl::StatusOr<comm::Communicator*> CreateCommunicator(
      int rank, fsdp::Axis axis, absl::string_view name);

  const LocalWorldOptions options_;
  schedule::Plan plan_;
  // By rank: its work that fails, or its call, stops its collectives.
  std::vector<std::unique_ptr<comm::Cancellation>> cancellations_;
  std::atomic<int> first_to_fail_{-1};  // the rank; -1: none has
  std::unique_ptr<comm::LoopbackWorld> loopback_;
  // Of the EP groups, by rank; empty: they have loopback communicators, too.
  std::vector<std::unique_ptr<comm::ShmTransport>> shared_memory_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  int64_t steps_run_ = 0;
};

}  // namespace weft::exec::testing

#endif  // WEFT_WORKER_EXEC_TESTING_LOCAL_WORLD_H_
