// Gather, reduce and the control record over loopback ranks.
#include "fsdp/runtime/transfer.h"

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "base/status_matchers.h"
#include "fsdp/runtime/control.h"
#include "gtest/gtest.h"
#include "kernels/comm/loopback/loopback.h"
#include "kernels/device/cpu/cpu_device.h"

namespace weft::fsdp {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kElements = 32;

// Calls `fn` as work on a stream of every rank.
using RankFn =
    std::function<absl::Status(comm::Communicator&, device::Stream&)>;

struct RankWork {
  const RankFn* fn;
  comm::Communicator* comm;
};

absl::Status RunRank(void* arg, device::Stream& stream) {
  const auto& work = *static_cast<RankWork*>(arg);
  return (*work.fn)(*work.comm, stream);
}

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

// Gradient element i of a rank; elements 28.. are padding and hold rubbish.
std::vector<float> GradientOf(int rank, int microbatch) {
  std::vector<float> gradient(kElements, kNan);
  for (int64_t i = 0; i < 28; ++i) {
    gradient[i] = static_cast<float>((i + 1) * (rank + 1) + 100 * microbatch);
  }
  return gradient;
}

const std::vector<Range>& Padding() {
  static const std::vector<Range>& padding =
      *new std::vector<Range>{{28, kElements}};
  return padding;
}

ReduceWork WorkFor(comm::Communicator& comm, std::vector<float>& gradient) {
  ReduceWork work;
  work.comm = &comm;
  work.gradient = gradient.data();
  work.elements = kElements;
  work.padding = Padding();
  work.factor = 1.0f / comm.size();
  return work;
}

// The mean over ranks of the gradients of all microbatches, or 0 in padding.
float Expected(int64_t i, int ranks, int microbatches) {
  if (i >= 28) return 0;
  double sum = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int m = 0; m < microbatches; ++m) sum += GradientOf(rank, m)[i];
  }
  return static_cast<float>(sum / ranks);
}

TEST(TransferTest, GatherPutsSlicesInRankOrder) {
  OnRanks(4, [](comm::Communicator& comm, device::Stream& stream) {
    const std::vector<float> slice(8, comm.rank() + 1.0f);
    std::vector<float> whole(32);
    GatherWork work;
    work.comm = &comm;
    work.slice = slice.data();
    work.whole = whole.data();
    work.slice_elements = 8;
    const absl::Status status = Gather(work, stream);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(whole[i], i / 8 + 1);
    return status;
  });
}

// A group of one rank is no special case: over microbatches its gradient is
// neither doubled nor scaled again.
TEST(TransferTest, ShardIsTheMeanOverRanksSummedOverMicrobatches) {
  for (int ranks : {1, 2, 4}) {
    OnRanks(ranks, [&](comm::Communicator& comm, device::Stream& stream) {
      const int64_t slice = kElements / ranks;
      std::vector<float> shard(slice, kNan);
      std::vector<float> staging(slice, kNan);
      absl::Status status;
      for (int m = 0; m < 3; ++m) {
        std::vector<float> gradient = GradientOf(comm.rank(), m);
        ReduceWork work = WorkFor(comm, gradient);
        work.shard = shard.data();
        work.staging = staging.data();
        work.accumulate = m > 0;
        status.Update(ReduceToShard(work, stream));
      }
      for (int64_t i = 0; i < slice; ++i) {
        EXPECT_FLOAT_EQ(shard[i], Expected(comm.rank() * slice + i, ranks, 3))
            << "ranks " << ranks << " element " << i;
      }
      return status;
    });
  }
}

TEST(TransferTest, ReduceInPlaceGivesAllRanksWhatShardsWouldHold) {
  for (int ranks : {1, 2, 4}) {
    OnRanks(ranks, [&](comm::Communicator& comm, device::Stream& stream) {
      std::vector<float> whole = GradientOf(comm.rank(), 0);
      absl::Status status = ReduceInPlace(WorkFor(comm, whole), stream);
      const int64_t slice = kElements / ranks;
      std::vector<float> gradient = GradientOf(comm.rank(), 0);
      std::vector<float> shard(slice);
      ReduceWork work = WorkFor(comm, gradient);
      work.shard = shard.data();
      status.Update(ReduceToShard(work, stream));
      for (int64_t i = 0; i < kElements; ++i) {
        EXPECT_FLOAT_EQ(whole[i], Expected(i, ranks, 1));
      }
      for (int64_t i = 0; i < slice; ++i) {
        EXPECT_EQ(whole[comm.rank() * slice + i], shard[i]);
      }
      return status;
    });
  }
}

// Adding up on each rank and reducing once gives what reducing every
// microbatch gives; on one rank to the bit.
TEST(TransferTest, AddedUpAndReducedInPlaceIsTheSameMean) {
  for (int ranks : {1, 2}) {
    OnRanks(ranks, [&](comm::Communicator& comm, device::Stream& stream) {
      std::vector<float> sum(kElements, kNan);
      for (int m = 0; m < 3; ++m) {
        std::vector<float> gradient = GradientOf(comm.rank(), m);
        AddWork add;
        add.gradient = gradient.data();
        add.sum = sum.data();
        add.elements = kElements;
        add.padding = Padding();
        add.accumulate = m > 0;
        AddToSum(add, stream);
      }
      ReduceWork reduce = WorkFor(comm, sum);
      const absl::Status status = ReduceInPlace(reduce, stream);
      for (int64_t i = 0; i < kElements; ++i) {
        EXPECT_FLOAT_EQ(sum[i], Expected(i, ranks, 3))
            << "ranks " << ranks << " element " << i;
      }
      return status;
    });
  }
}

TEST(ControlTest, AllRanksSeeTheSameTotals) {
  OnRanks(3, [](comm::Communicator& comm, device::Stream& stream) {
    const int rank = comm.rank();
    const std::vector<float> a(5, rank + 1.0f);
    const std::vector<float> b(3, 2.0f);
    const std::vector<SliceView> slices = {{a.data(), 5}, {b.data(), 3}};
    const std::vector<double> losses = {rank + 0.5, 10.0};
    const std::vector<const double*> loss_values = {&losses[0], &losses[1]};
    std::vector<double> record(ControlRecord::Doubles(2));
    std::vector<double> records(3 * record.size());
    record[ControlRecord::kWord] = rank == 1 ? 9 : -4;
    record[ControlRecord::kTokens] = 6;
    ControlWork work;
    work.comm = &comm;
    work.slices = slices;
    work.losses = loss_values;
    work.record = record.data();
    work.records = records.data();
    const absl::Status status = ExchangeControl(work, stream);
    const ControlTotals totals = SumControl(records.data(), 3, 2);
    EXPECT_DOUBLE_EQ(totals.norm, std::sqrt(5 * (1 + 4 + 9) + 3 * 3 * 4.0));
    EXPECT_DOUBLE_EQ(totals.loss_sum, 0.5 + 1.5 + 2.5 + 30);
    EXPECT_DOUBLE_EQ(totals.mean_loss(), 34.5 / 18);
    EXPECT_EQ(totals.word, 9);
    return status;
  });
}

}  // namespace
}  // namespace weft::fsdp
