#include "fsdp/runtime/testing/ranks.h"

#include <memory>
#include <thread>
#include <vector>

#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "kernels/comm/loopback/loopback.h"
#include "kernels/device/cpu/cpu_device.h"

namespace weft::fsdp {
namespace {

struct RankWork {
  const RankFn* fn;
  comm::Communicator* comm;
};

absl::Status RunRank(void* arg, device::Stream& stream) {
  const auto& work = *static_cast<RankWork*>(arg);
  return (*work.fn)(*work.comm, stream);
}

}  // namespace

void OnRanks(int ranks, const RankFn& fn) {
  comm::LoopbackOptions options;
  options.ranks = ranks;
  auto world = comm::LoopbackWorld::Create(options);
  ASSERT_OK(world);
  std::vector<int> members;
  for (int rank = 0; rank < ranks; ++rank) members.push_back(rank);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ASSERT_OK_AND_ASSIGN(auto device, device::CreateCpuDevice({}));
      ASSERT_OK_AND_ASSIGN(auto stream, device->CreateStream("test"));
      ASSERT_OK_AND_ASSIGN(auto comm,
                           (*world)->CreateCommunicator("test", members, rank));
      RankWork work = {&fn, comm.get()};
      stream->Launch(&RunRank, &work);
      EXPECT_OK(stream->Synchronize());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace weft::fsdp
