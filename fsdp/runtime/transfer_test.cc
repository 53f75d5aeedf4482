#include "fsdp/runtime/transfer.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "base/bf16.h"
#include "base/no_destructor.h"
#include "fsdp/runtime/testing/ranks.h"
#include "gtest/gtest.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"

namespace weft::fsdp {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kElements = 32;

// Gradient element i of a rank; elements 28.. are padding and hold rubbish.
std::vector<float> GradientOf(int rank, int microbatch) {
  std::vector<float> gradient(kElements, kNan);
  for (int64_t i = 0; i < 28; ++i) {
    gradient[i] = static_cast<float>((i + 1) * (rank + 1) + 100 * microbatch);
  }
  return gradient;
}

const std::vector<Range>& Padding() {
  static const NoDestructor<std::vector<Range>> padding(
      std::vector<Range>{{28, kElements}});
  return *padding;
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

TEST(TransferTest, GatherRoundsToTheFormatOfTheWholeBeforeItSends) {
  OnRanks(4, [](comm::Communicator& comm, device::Stream& stream) {
    const float value = static_cast<float>(comm.rank()) + 1.001f;
    const std::vector<float> slice(8, value);
    std::vector<Bf16> whole(32);
    GatherWork work;
    work.comm = &comm;
    work.slice = slice.data();
    work.whole = whole.data();
    work.slice_elements = 8;
    const absl::Status status = Gather(work, stream);
    for (int i = 0; i < 32; ++i) EXPECT_EQ(ToFloat(whole[i]), i / 8 + 1);
    EXPECT_EQ(comm.wire_bytes(), 3 * 8 * 2);
    return status;
  });
}

// Element i of a rank's gradient in bf16, as GradientOf; small enough that
// nothing but a sum rounds.
std::vector<Bf16> HalfGradientOf(int rank, int microbatch) {
  std::vector<Bf16> gradient;
  for (const float value : GradientOf(rank, microbatch)) {
    gradient.push_back(ToBf16(value / 64));
  }
  return gradient;
}

// What one microbatch adds to element i of a shard: the mean over ranks, summed
// in fp32 and rounded once.
float HalfMean(int64_t i, int ranks, int microbatch) {
  if (i >= 28) return 0;
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const float value = ToFloat(HalfGradientOf(rank, microbatch)[i]);
    sum += ToFloat(ToBf16(value / static_cast<float>(ranks)));
  }
  return ToFloat(ToBf16(sum));
}

TEST(TransferTest, Bf16RoundsTheSumOverRanksOnceAndEveryAddition) {
  for (int ranks : {1, 2, 4}) {
    OnRanks(ranks, [&](comm::Communicator& comm, device::Stream& stream) {
      const int64_t slice = kElements / ranks;
      std::vector<Bf16> shard(slice);
      std::vector<Bf16> staging(slice);
      std::vector<float> expected(slice);
      absl::Status status;
      for (int m = 0; m < 3; ++m) {
        std::vector<Bf16> gradient = HalfGradientOf(comm.rank(), m);
        ReduceWork work;
        work.comm = &comm;
        work.gradient = gradient.data();
        work.elements = kElements;
        work.padding = Padding();
        work.factor = 1.0f / static_cast<float>(ranks);
        work.shard = shard.data();
        work.staging = staging.data();
        work.accumulate = m > 0;
        status.Update(ReduceToShard(work, stream));
        for (int64_t i = 0; i < slice; ++i) {
          const float mean = HalfMean(comm.rank() * slice + i, ranks, m);
          expected[i] = ToFloat(ToBf16(expected[i] + mean));
        }
      }
      for (int64_t i = 0; i < slice; ++i) {
        EXPECT_EQ(ToFloat(shard[i]), expected[i])
            << "ranks " << ranks << " element " << i;
      }
      EXPECT_EQ(comm.wire_bytes(), 3 * (ranks - 1) * slice * 2);
      return status;
    });
  }
}

// Adding up on one rank, then reducing, gives the bits of reducing each.
TEST(TransferTest, Bf16AddedUpAndReducedInPlaceIsTheShardOfOneRank) {
  OnRanks(1, [](comm::Communicator& comm, device::Stream& stream) {
    std::vector<Bf16> sum(kElements);
    std::vector<Bf16> shard(kElements);
    std::vector<Bf16> staging(kElements);
    absl::Status status;
    for (int m = 0; m < 3; ++m) {
      std::vector<Bf16> gradient = HalfGradientOf(0, m);
      std::vector<Bf16> same = gradient;
      AddWork add;
      add.gradient = gradient.data();
      add.sum = sum.data();
      add.elements = kElements;
      add.padding = Padding();
      add.accumulate = m > 0;
      AddToSum(add, stream);
      ReduceWork work;
      work.comm = &comm;
      work.gradient = same.data();
      work.elements = kElements;
      work.padding = Padding();
      work.shard = shard.data();
      work.staging = staging.data();
      work.accumulate = m > 0;
      status.Update(ReduceToShard(work, stream));
    }
    for (int64_t i = 0; i < kElements; ++i) {
      EXPECT_EQ(sum[i].bits, shard[i].bits) << i;
    }
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

TEST(TransferTest, ReduceToOwnSliceGivesEachRankWhatTheWholeHoldsThere) {
  for (int ranks : {1, 2, 4}) {
    OnRanks(ranks, [&](comm::Communicator& comm, device::Stream& stream) {
      std::vector<float> whole = GradientOf(comm.rank(), 0);
      absl::Status status = ReduceInPlace(WorkFor(comm, whole), stream);
      const int64_t slice = kElements / ranks;
      const int64_t begin = comm.rank() * slice;
      std::vector<float> gradient = GradientOf(comm.rank(), 0);
      std::vector<float> staging(slice, kNan);
      ReduceWork work = WorkFor(comm, gradient);
      work.shard = gradient.data() + begin;
      work.staging = staging.data();
      status.Update(ReduceToOwnSlice(work, stream));
      for (int64_t i = begin; i < begin + slice; ++i) {
        EXPECT_EQ(gradient[i], whole[i]) << "ranks " << ranks << " at " << i;
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

}  // namespace
}  // namespace weft::fsdp
