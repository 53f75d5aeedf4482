// Conformance: groups beside each other, and what is counted.
#include <thread>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/status_matchers.h"
#include "kernels/comm/conformance.h"

namespace weft::comm {
namespace {

const CollectiveTag kTag = {"test", 0, 0, 0};

TEST_P(CommunicatorConformance, SubgroupsRunBesideTheWorldOnOtherStreams) {
  CreateWorld();
  std::vector<int> even, odd;
  for (int r = 0; r < ranks(); ++r) (r % 2 == 0 ? even : odd).push_back(r);
  auto subgroups = CreateGroup("ep", even, /*stream=*/1);
  if (!odd.empty()) {
    auto others = CreateGroup("ep", odd, /*stream=*/1);
    for (int r : odd) subgroups[r] = std::move(others[r]);
  }
  const RankBody body = [&](int rank, Communicator& comm,
                            device::Stream& stream) {
    const bool is_sub = comm.name() == "ep";
    const std::vector<int>& members =
        !is_sub ? all_ranks() : (rank % 2 == 0 ? even : odd);
    EXPECT_EQ(comm.size(), static_cast<int>(members.size()));
    EXPECT_EQ(members[comm.rank()], rank);
    for (int turn = 0; turn < 100; ++turn) {
      const int own = rank * 1000 + turn;
      std::vector<int> seen(members.size(), -1);
      const absl::Status status =
          comm.AllGather(&own, seen.data(), 4, stream, kTag);
      if (!status.ok()) return status;
      for (size_t i = 0; i < members.size(); ++i) {
        EXPECT_EQ(seen[i], members[i] * 1000 + turn);
      }
    }
    return absl::OkStatus();
  };
  std::thread beside([&] {
    for (const absl::Status& status : RunOn(subgroups, body)) EXPECT_OK(status);
  });
  RunAll(body);
  beside.join();
}

TEST_P(CommunicatorConformance, WireBytesCountPayloadToOthersOnly) {
  CreateWorld();
  RunAll([&](int rank, Communicator& comm, device::Stream& stream) {
    const int64_t others = ranks() - 1;
    std::vector<float> data(100 * ranks());
    std::vector<float> slice(100);
    absl::Status status =
        comm.AllGather(slice.data(), data.data(), 400, stream, kTag);
    EXPECT_EQ(comm.wire_bytes(), others * 400);
    status.Update(comm.ReduceScatter(data.data(), slice.data(), 100,
                                     DType::kF32, stream, kTag));
    EXPECT_EQ(comm.wire_bytes(), others * 800);
    status.Update(
        comm.AllReduce(data.data(), 100 * ranks(), DType::kF32, stream, kTag));
    EXPECT_EQ(comm.wire_bytes(), others * 1600);
    status.Update(comm.Broadcast(data.data(), 40, 0, stream, kTag));
    status.Update(comm.Barrier(stream, kTag));
    EXPECT_EQ(comm.wire_bytes(), others * (rank == 0 ? 1640 : 1600));
    return status;
  });
}

}  // namespace
}  // namespace weft::comm
