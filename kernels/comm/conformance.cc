#include "kernels/comm/conformance.h"

#include <numeric>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "kernels/device/cpu/cpu_device.h"

namespace weft::comm {
namespace {

// One rank's part of a run, as work of a stream.
struct RankWork {
  std::function<absl::Status(device::Stream&)> body;
  bool has_run = false;
  absl::Status status;
  std::unique_ptr<device::Stream> stream;
};

absl::Status RunWork(void* arg, device::Stream& stream) {
  auto& work = *static_cast<RankWork*>(arg);
  work.has_run = true;
  work.status = work.body(stream);
  return absl::OkStatus();  // other ranks' streams go on
}

}  // namespace

int GroupIds::IdOf(absl::string_view name, absl::Span<const int> ranks,
                   int rank, int stream) {
  MutexLock lock(&mu_);
  const std::string key =
      absl::StrCat(name, "/", ranks.size(), "/", ranks.empty() ? -1 : ranks[0]);
  const int generation = made_[{key, rank, stream}]++;
  return ids_
      .emplace(absl::StrCat(key, "/", generation),
               static_cast<int>(ids_.size()))
      .first->second;
}

std::vector<WorldUnderTest> WorldsUnderTest(
    const std::string& backend,
    std::function<absl::StatusOr<std::unique_ptr<TestWorld>>(TestWorldOptions)>
        create) {
  std::vector<WorldUnderTest> worlds;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    worlds.push_back({absl::StrCat(backend, "_", ranks), ranks, create});
  }
  return worlds;
}

std::vector<int> CommunicatorConformance::all_ranks() const {
  std::vector<int> all(ranks());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void CommunicatorConformance::CreateWorld(absl::Duration deadline,
                                          Cancellation* cancellation) {
  TestWorldOptions options;
  options.ranks = ranks();
  options.deadline = deadline;
  options.cancellation = cancellation;
  ASSERT_OK_AND_ASSIGN(world_, GetParam().create(options));
  communicators_ = CreateGroup("world", all_ranks(), /*stream=*/0);
}

std::vector<std::unique_ptr<Communicator>> CommunicatorConformance::CreateGroup(
    absl::string_view name, absl::Span<const int> group, int stream) {
  std::vector<std::unique_ptr<Communicator>> made(ranks());
  std::vector<std::thread> threads;
  for (int rank : group) {
    threads.emplace_back([&, rank] {
      auto communicator = world_->CreateCommunicator(name, group, rank, stream);
      EXPECT_OK(communicator);
      if (communicator.ok()) made[rank] = *std::move(communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return made;
}

std::vector<absl::Status> CommunicatorConformance::RunOn(
    const std::vector<std::unique_ptr<Communicator>>& communicators,
    const RankBody& body) {
  auto cpu = device::CreateCpuDevice({});
  EXPECT_OK(cpu);
  std::vector<RankWork> work(communicators.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < work.size(); ++rank) {
    if (communicators[rank] == nullptr) continue;
    work[rank].body = [&, rank](device::Stream& stream) {
      return body(static_cast<int>(rank), *communicators[rank], stream);
    };
    device::Device* own = world_->device(static_cast<int>(rank));
    if (own == nullptr) own = cpu->get();
    auto stream = own->CreateStream(absl::StrCat("rank", rank));
    EXPECT_OK(stream);
    work[rank].stream = *std::move(stream);
  }
  for (RankWork& one : work) {
    if (one.stream == nullptr) continue;
    // A stream may run its work on the thread that launches it.
    threads.emplace_back([&one] {
      one.stream->Launch(&RunWork, &one);
      // A device that has failed drops work; else its error is the body's own.
      const absl::Status device = one.stream->Synchronize();
      if (!one.has_run) one.status = device;
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<absl::Status> statuses;
  for (RankWork& one : work) statuses.push_back(one.status);
  return statuses;
}

void CommunicatorConformance::RunAll(const RankBody& body) {
  const std::vector<absl::Status> statuses = RunOn(communicators_, body);
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    EXPECT_OK(statuses[rank]) << "rank " << rank;
  }
}

}  // namespace weft::comm
