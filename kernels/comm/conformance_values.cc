// Conformance: what lands where, and to the bit.
#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "base/bf16.h"
#include "base/dtype.h"
#include "base/status_matchers.h"
#include "kernels/comm/conformance.h"

namespace weft::comm {
namespace {

const CollectiveTag kTag = {"test", 0, 0, 0};

// A value that is a fraction, so that the order of a sum shows in its bits.
template <typename T>
T ValueOf(int rank, int64_t i) {
  const auto mixed =
      static_cast<uint64_t>(rank * 1000003 + i) * uint64_t{0x9E3779B97F4A7C15};
  const auto fraction = static_cast<T>(mixed >> 40) / T{7};
  return (mixed & 1) != 0 ? fraction : -fraction * T{1000};
}

template <typename T>
std::vector<T> ValuesOf(int rank, int64_t count) {
  std::vector<T> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = ValueOf<T>(rank, i);
  return values;
}

// The sum of elements [begin, begin + count) over ranks, by a plain loop.
template <typename T>
std::vector<T> PlainSum(int ranks, int64_t begin, int64_t count) {
  std::vector<T> sum(count);
  for (int64_t i = 0; i < count; ++i) {
    sum[i] = ValueOf<T>(0, begin + i);
    for (int r = 1; r < ranks; ++r) sum[i] += ValueOf<T>(r, begin + i);
  }
  return sum;
}

template <typename T>
bool SameBits(const T* a, const std::vector<T>& b) {
  return b.empty() || std::memcmp(a, b.data(), b.size() * sizeof(T)) == 0;
}

// Sizes around blocks, packets and protocol changes.
constexpr int64_t kSizes[] = {0, 1, 7, 255, 1024, 5000, 30001};

TEST_P(CommunicatorConformance, AllGatherPlacesShardsInRankOrder) {
  CreateWorld();
  RunAll([&](int rank, Communicator& comm, device::Stream& stream) {
    for (int64_t count : kSizes) {
      const std::vector<float> send = ValuesOf<float>(rank, count);
      std::vector<float> recv(count * ranks(), -1.0f);
      const int64_t bytes = count * 4;
      absl::Status status =
          comm.AllGather(send.data(), recv.data(), bytes, stream, kTag);
      if (!status.ok()) return status;
      for (int r = 0; r < ranks(); ++r) {
        EXPECT_TRUE(
            SameBits(recv.data() + r * count, ValuesOf<float>(r, count)));
      }
      // In place: the own slice already lies where it belongs.
      std::vector<float> both(count * ranks(), -1.0f);
      float* const own = both.data() + rank * count;
      std::copy(send.begin(), send.end(), own);
      status = comm.AllGather(own, both.data(), bytes, stream, kTag);
      if (!status.ok()) return status;
      EXPECT_EQ(both, recv);
    }
    return absl::OkStatus();
  });
}

template <typename T>
absl::Status ReduceScatterBothWays(int rank, int ranks, int64_t count,
                                   DType dtype, Communicator& comm,
                                   device::Stream& stream) {
  std::vector<T> send = ValuesOf<T>(rank, count * ranks);
  const std::vector<T> expected = PlainSum<T>(ranks, rank * count, count);
  std::vector<T> recv(count + 1, T{-1});
  absl::Status status =
      comm.ReduceScatter(send.data(), recv.data(), count, dtype, stream, kTag);
  if (!status.ok()) return status;
  EXPECT_TRUE(SameBits(recv.data(), expected));
  EXPECT_EQ(recv[count], T{-1}) << "wrote beyond the result";
  EXPECT_TRUE(SameBits(send.data(), ValuesOf<T>(rank, count * ranks)));
  T* const own = send.data() + rank * count;
  status = comm.ReduceScatter(send.data(), own, count, dtype, stream, kTag);
  EXPECT_TRUE(SameBits(own, expected)) << "in place";
  return status;
}

TEST_P(CommunicatorConformance, ReduceScatterSumsInRankOrderToTheBit) {
  CreateWorld();
  RunAll([&](int rank, Communicator& comm, device::Stream& stream) {
    absl::Status status = comm.Reserve(1 << 16);
    for (int64_t count : kSizes) {
      status.Update(ReduceScatterBothWays<float>(rank, ranks(), count,
                                                 DType::kF32, comm, stream));
      status.Update(ReduceScatterBothWays<double>(rank, ranks(), count,
                                                  DType::kF64, comm, stream));
    }
    return status;
  });
}

TEST_P(CommunicatorConformance, AllReduceIsReduceScatterThenAllGather) {
  CreateWorld();
  RunAll([&](int rank, Communicator& comm, device::Stream& stream) {
    for (int64_t count : kSizes) {
      const int64_t total = count * ranks();
      std::vector<float> data = ValuesOf<float>(rank, total);
      const absl::Status status =
          comm.AllReduce(data.data(), total, DType::kF32, stream, kTag);
      if (!status.ok()) return status;
      EXPECT_TRUE(SameBits(data.data(), PlainSum<float>(ranks(), 0, total)));
    }
    std::vector<double> norm = ValuesOf<double>(rank, ranks());
    const absl::Status status =
        comm.AllReduce(norm.data(), ranks(), DType::kF64, stream, kTag);
    EXPECT_TRUE(SameBits(norm.data(), PlainSum<double>(ranks(), 0, ranks())));
    return status;
  });
}

std::vector<Bf16> HalvesOf(int rank, int64_t count) {
  std::vector<Bf16> values;
  for (const float value : ValuesOf<float>(rank, count)) {
    values.push_back(ToBf16(value));
  }
  return values;
}

// The sum over ranks in fp32, rounded once.
std::vector<Bf16> RoundedSum(int ranks, int64_t count) {
  std::vector<float> sum(count);
  for (int r = 0; r < ranks; ++r) {
    const std::vector<Bf16> values = HalvesOf(r, count);
    for (int64_t i = 0; i < count; ++i) {
      sum[i] = r == 0 ? ToFloat(values[i]) : sum[i] + ToFloat(values[i]);
    }
  }
  std::vector<Bf16> rounded;
  for (const float value : sum) rounded.push_back(ToBf16(value));
  return rounded;
}

TEST_P(CommunicatorConformance, ASumOfBf16IsTakenInFp32AndRoundedOnce) {
  CreateWorld();
  RunAll([&](int rank, Communicator& comm, device::Stream& stream) {
    for (int64_t count : kSizes) {
      const int64_t total = count * ranks();
      const std::vector<Bf16> expected = RoundedSum(ranks(), total);
      std::vector<Bf16> data = HalvesOf(rank, total);
      std::vector<Bf16> slice(count);
      absl::Status status = comm.ReduceScatter(data.data(), slice.data(), count,
                                               DType::kBf16, stream, kTag);
      if (!status.ok()) return status;
      const auto own = expected.begin() + rank * count;
      EXPECT_TRUE(SameBits(slice.data(), {own, own + count}));
      status = comm.AllReduce(data.data(), total, DType::kBf16, stream, kTag);
      if (!status.ok()) return status;
      EXPECT_TRUE(SameBits(data.data(), expected));
    }
    return absl::OkStatus();
  });
}

TEST_P(CommunicatorConformance, BroadcastCopiesTheRoot) {
  CreateWorld();
  RunAll([&](int rank, Communicator& comm, device::Stream& stream) {
    for (int root = 0; root < ranks(); ++root) {
      for (int64_t count : kSizes) {
        std::vector<float> data = ValuesOf<float>(rank, count);
        const absl::Status status =
            comm.Broadcast(data.data(), count * 4, root, stream, kTag);
        if (!status.ok()) return status;
        EXPECT_TRUE(SameBits(data.data(), ValuesOf<float>(root, count)));
      }
    }
    return absl::OkStatus();
  });
}

TEST_P(CommunicatorConformance, NobodyLeavesABarrierBeforeAllHaveCome) {
  CreateWorld();
  std::atomic<int> arrived{0};
  RunAll([&](int rank, Communicator& comm, device::Stream& stream) {
    for (int turn = 1; turn <= 20; ++turn) {
      ++arrived;
      absl::Status status = comm.Barrier(stream, kTag);
      if (!status.ok()) return status;
      EXPECT_GE(arrived.load(), turn * ranks());
      status = comm.Barrier(stream, kTag);  // nobody counts on too early
      if (!status.ok()) return status;
      EXPECT_LE(arrived.load(), (turn + 1) * ranks());
    }
    return absl::OkStatus();
  });
}

// Who sends how many bytes to whom, in how many segments: known to all ranks.
struct Traffic {
  // [from][to] = sizes of the segments.
  std::vector<std::vector<std::vector<int64_t>>> sizes;

  std::vector<Segment> SendsOf(int rank) const {
    std::vector<Segment> segments;
    int64_t offset = 0;
    for (size_t to = 0; to < sizes.size(); ++to) {
      for (int64_t bytes : sizes[rank][to]) {
        segments.push_back({static_cast<int32_t>(to), offset, bytes});
        offset += bytes;
      }
    }
    return segments;
  }

  std::vector<Segment> RecvsOf(int rank) const {
    std::vector<Segment> segments;
    int64_t offset = 0;
    for (size_t from = 0; from < sizes.size(); ++from) {
      int64_t peer_offset = OffsetOf(static_cast<int>(from), rank);
      for (int64_t bytes : sizes[from][rank]) {
        segments.push_back(
            {static_cast<int32_t>(from), offset, bytes, peer_offset});
        offset += bytes;
        peer_offset += bytes;
      }
    }
    return segments;
  }

  // Where what `from` sends to `to` begins in its send buffer.
  int64_t OffsetOf(int from, int to) const {
    int64_t offset = 0;
    for (int before = 0; before < to; ++before) {
      for (int64_t bytes : sizes[from][before]) offset += bytes;
    }
    return offset;
  }
};

int64_t TotalBytes(const std::vector<Segment>& segments) {
  return std::accumulate(
      segments.begin(), segments.end(), int64_t{0},
      [](int64_t sum, const Segment& s) { return sum + s.bytes; });
}

// The byte at `index` of segment `k` from `from` to `to`.
uint8_t ByteOf(int from, int to, int k, int64_t index) {
  return static_cast<uint8_t>(from * 101 + to * 57 + k * 31 + index * 7);
}

void FillSends(int rank, const std::vector<Segment>& sends,
               std::vector<uint8_t>* data) {
  std::vector<int> next(16, 0);
  for (const Segment& segment : sends) {
    const int k = next[segment.peer]++;
    for (int64_t i = 0; i < segment.bytes; ++i) {
      (*data)[segment.offset + i] = ByteOf(rank, segment.peer, k, i);
    }
  }
}

bool RecvsAreRight(int rank, const std::vector<Segment>& recvs,
                   const std::vector<uint8_t>& data) {
  std::vector<int> next(16, 0);
  for (const Segment& segment : recvs) {
    const int k = next[segment.peer]++;
    for (int64_t i = 0; i < segment.bytes; ++i) {
      if (data[segment.offset + i] != ByteOf(segment.peer, rank, k, i)) {
        return false;
      }
    }
  }
  return true;
}

absl::Status RunTraffic(const Traffic& traffic, int rank, Communicator& comm,
                        device::Stream& stream) {
  const std::vector<Segment> sends = traffic.SendsOf(rank);
  const std::vector<Segment> recvs = traffic.RecvsOf(rank);
  std::vector<uint8_t> send(TotalBytes(sends));
  std::vector<uint8_t> recv(TotalBytes(recvs) + 1, 0xEE);
  FillSends(rank, sends, &send);
  int64_t to_others = 0;
  for (const Segment& s : sends) to_others += s.peer == rank ? 0 : s.bytes;
  const int64_t before = comm.wire_bytes();
  const absl::Status status =
      comm.AllToAllV(send.data(), sends, recv.data(), recvs, stream, kTag);
  if (!status.ok()) return status;
  EXPECT_TRUE(RecvsAreRight(rank, recvs, recv)) << "rank " << rank;
  EXPECT_EQ(recv.back(), 0xEE) << "wrote beyond the last segment";
  EXPECT_EQ(comm.wire_bytes() - before, to_others);
  return absl::OkStatus();
}

Traffic RandomTraffic(int ranks, int max_segments, int64_t max_bytes,
                      std::mt19937_64* random) {
  Traffic traffic;
  traffic.sizes.resize(ranks);
  for (auto& row : traffic.sizes) {
    row.resize(ranks);
    for (auto& segments : row) {
      segments.resize((*random)() % (max_segments + 1));
      for (int64_t& bytes : segments) {
        bytes = (*random)() % 3 == 0 ? 0 : (*random)() % max_bytes;
      }
    }
  }
  return traffic;
}

TEST_P(CommunicatorConformance, AllToAllVMovesRandomSegments) {
  CreateWorld();
  std::mt19937_64 random(20240501);
  std::vector<Traffic> turns;
  for (int turn = 0; turn < 14; ++turn) {
    // Packets of all protocols: some bytes up to some hundred thousand.
    turns.push_back(
        RandomTraffic(ranks(), 5, 1 + (int64_t{40} << turn), &random));
  }
  RunAll([&](int rank, Communicator& comm, device::Stream& stream) {
    for (const Traffic& traffic : turns) {
      const absl::Status status = RunTraffic(traffic, rank, comm, stream);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  });
}

TEST_P(CommunicatorConformance, AllToAllVTakesEverythingToOneRank) {
  CreateWorld();
  Traffic traffic;
  traffic.sizes.assign(ranks(), std::vector<std::vector<int64_t>>(ranks()));
  for (int from = 0; from < ranks(); ++from) {
    traffic.sizes[from][0] = {1 << 20, 1, 0, 65536};
  }
  RunAll([&](int rank, Communicator& comm, device::Stream& stream) {
    return RunTraffic(traffic, rank, comm, stream);
  });
}

TEST_P(CommunicatorConformance, AllToAllVWithoutAnySegmentCompletes) {
  CreateWorld();
  RunAll([&](int rank, Communicator& comm, device::Stream& stream) {
    return comm.AllToAllV(nullptr, {}, nullptr, {}, stream, kTag);
  });
}

TEST_P(CommunicatorConformance, EmptySegmentsDoNotCountOnEitherSide) {
  CreateWorld();
  RunAll([&](int rank, Communicator& comm, device::Stream& stream) {
    const int from = (rank + ranks() - 1) % ranks();
    const int to = (rank + 1) % ranks();
    const int sent[2] = {rank * 10, rank * 10 + 1};
    int received[2] = {-1, -1};
    const absl::Status status = comm.AllToAllV(
        sent, {{to, 0, 0}, {to, 0, 4}, {to, 4, 4}}, received,
        {{from, 4, 4, 0}, {from, 0, 4, 4}, {from, 0, 0}}, stream, kTag);
    EXPECT_EQ(received[1], from * 10);
    EXPECT_EQ(received[0], from * 10 + 1);
    return status;
  });
}

TEST_P(CommunicatorConformance, BackToBackOpsWithoutBarrierDoNotMix) {
  CreateWorld();
  constexpr int kTurns = 150;
  std::vector<std::atomic<int>> begun(kTurns);  // ranks that are in a turn
  RunAll([&](int rank, Communicator& comm, device::Stream& stream) {
    std::mt19937_64 random(7);  // the same on all ranks
    for (int turn = 0; turn < kTurns; ++turn) {
      // One rank lags behind now and then, until the others have run ahead.
      while (turn % 50 == rank && begun[turn] < ranks() - 1) {
        std::this_thread::yield();
      }
      ++begun[turn];
      absl::Status status = RunTraffic(RandomTraffic(ranks(), 3, 3000, &random),
                                       rank, comm, stream);
      const int64_t count = static_cast<int64_t>(random() % 2000);
      status.Update(ReduceScatterBothWays<float>(rank, ranks(), count,
                                                 DType::kF32, comm, stream));
      std::vector<int> seen(ranks(), -1);
      const int own = rank * 1000 + turn;
      status.Update(comm.AllGather(&own, seen.data(), 4, stream, kTag));
      if (!status.ok()) return status;
      for (int r = 0; r < ranks(); ++r) EXPECT_EQ(seen[r], r * 1000 + turn);
    }
    return absl::OkStatus();
  });
}

}  // namespace
}  // namespace weft::comm
