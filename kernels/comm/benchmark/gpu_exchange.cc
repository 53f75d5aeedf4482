// Time of collectives between GPUs, by NCCL and by copies over NVLink, a
// process a rank.
//
//   gpu_exchange [RANKS]
//
// Of each collective: bytes from each rank to each other one, the host's time
// to enqueue it, the time it takes when many follow each other, and the rate at
// which a rank receives. With fewer GPUs than ranks, ranks share one, and times
// say nothing.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "kernels/comm/communicator.h"
#include "kernels/comm/cuda/testing/test_device.h"
#include "kernels/comm/nccl/nccl.h"
#include "kernels/comm/nvlink/nvlink.h"
#include "kernels/comm/processes.h"
#include "kernels/device/device.h"

namespace weft::comm {
namespace {

constexpr int64_t kMaxBytes = int64_t{64} << 20;
constexpr int kTurns = 20;
constexpr int kSegments = 16;  // to each rank

struct Rank {
  int rank = 0;
  int world = 1;
  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::Stream> stream;
  std::unique_ptr<device::Buffer> sent, received;
};

// One kind of collective at one size, as work of the stream.
struct Work {
  const char* name = "";
  Communicator* comm = nullptr;
  const Rank* rank = nullptr;
  int64_t bytes = 0;
  int turns = 1;
  absl::Status (*one)(const Work& work, device::Stream& stream) = nullptr;
  std::vector<Segment> segments;
  std::chrono::nanoseconds enqueued{0};

  static absl::Status Run(void* arg, device::Stream& stream) {
    Work& work = *static_cast<Work*>(arg);
    const auto start = std::chrono::steady_clock::now();
    for (int turn = 0; turn < work.turns; ++turn) {
      RETURN_IF_ERROR(work.one(work, stream));
    }
    work.enqueued = std::chrono::steady_clock::now() - start;
    return absl::OkStatus();
  }
  CollectiveTag tag() const { return {name, static_cast<int>(bytes >> 10)}; }
};

absl::Status Gather(const Work& work, device::Stream& stream) {
  return work.comm->AllGather(work.rank->sent->data(),
                              work.rank->received->data(), work.bytes, stream,
                              work.tag());
}

absl::Status Reduce(const Work& work, device::Stream& stream) {
  return work.comm->ReduceScatter(work.rank->sent->data(),
                                  work.rank->received->data(), work.bytes / 2,
                                  DType::kBf16, stream, work.tag());
}

absl::Status Exchange(const Work& work, device::Stream& stream) {
  return work.comm->AllToAllV(work.rank->sent->data(), work.segments,
                              work.rank->received->data(), work.segments,
                              stream, work.tag());
}

// Rows of one rank lie apart where they are received, as those of experts do.
std::vector<Segment> SegmentsOf(const Rank& rank, int64_t bytes) {
  std::vector<Segment> segments;
  const int64_t part = bytes / kSegments;
  for (int peer = 0; peer < rank.world; ++peer) {
    for (int i = 0; i < kSegments; ++i) {
      segments.push_back({peer, (i * rank.world + peer) * part, part,
                          (i * rank.world + rank.rank) * part});
    }
  }
  return segments;
}

absl::Status Measure(const std::string& transport, Work& work) {
  device::Stream& stream = *work.rank->stream;
  std::chrono::nanoseconds taken{0};
  for (int turns : {2, kTurns}) {
    work.turns = turns;
    const auto start = std::chrono::steady_clock::now();
    stream.Launch(&Work::Run, &work);
    RETURN_IF_ERROR(stream.Synchronize());
    taken = std::chrono::steady_clock::now() - start;
  }
  if (work.rank->rank != 0) return absl::OkStatus();
  const double us = static_cast<double>(taken.count()) / 1e3 / kTurns;
  const double host_us =
      static_cast<double>(work.enqueued.count()) / 1e3 / kTurns;
  std::printf(
      "%-6s %-14s %9ld B: host %7.1f us, %9.1f us, %6.1f GB/s\n",
      transport.c_str(), work.name, static_cast<long>(work.bytes), host_us, us,
      static_cast<double>(work.bytes * (work.rank->world - 1)) / us / 1e3);
  return absl::OkStatus();
}

absl::Status MeasureAll(const std::string& transport, const Rank& rank,
                        Communicator& comm) {
  RETURN_IF_ERROR(comm.Reserve(kMaxBytes * rank.world));
  RETURN_IF_ERROR(comm.RegisterMemory({rank.sent.get()}));
  for (int64_t bytes = 64 << 10; bytes <= kMaxBytes; bytes *= 4) {
    Work work;
    work.comm = &comm;
    work.rank = &rank;
    work.bytes = bytes;
    work.segments = SegmentsOf(rank, bytes);
    work.name = "all_gather";
    work.one = &Gather;
    RETURN_IF_ERROR(Measure(transport, work));
    work.name = "reduce_scatter";
    work.one = &Reduce;
    RETURN_IF_ERROR(Measure(transport, work));
    work.name = "all_to_all_v";
    work.one = &Exchange;
    RETURN_IF_ERROR(Measure(transport, work));
  }
  return absl::OkStatus();
}

template <typename Transport, typename Options>
absl::Status MeasureTransport(const std::string& name, Options options,
                              const Rank& rank, Mailbox& mailbox) {
  options.name = "ep";
  options.rank = rank.rank;
  options.world = rank.world;
  options.device = rank.device.get();
  options.ordinal = cuda::GpuOfRank(rank.rank);
  ASSIGN_OR_RETURN(auto transport, Transport::Create(options));
  RETURN_IF_ERROR(transport->Connect(mailbox.Exchange(transport->address())));
  std::vector<int> all;
  for (int r = 0; r < rank.world; ++r) all.push_back(r);
  ASSIGN_OR_RETURN(auto comm, transport->CreateCommunicator("ep", 1, all));
  const absl::Status status = MeasureAll(name, rank, *comm);
  mailbox.Exchange("done");
  return status;
}

absl::Status RunRank(int number, int world, Mailbox& mailbox) {
  Rank rank;
  rank.rank = number;
  rank.world = world;
  if (cuda::NumGpus() < world) {
    ::setenv("NCCL_HOSTID", absl::StrCat("rank", number).c_str(), 1);
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  }
  ASSIGN_OR_RETURN(rank.device,
                   cuda::CreateTestDevice(cuda::GpuOfRank(number)));
  ASSIGN_OR_RETURN(rank.stream, rank.device->CreateStream("ep"));
  for (auto* buffer : {&rank.sent, &rank.received}) {
    ASSIGN_OR_RETURN(*buffer,
                     rank.device->Allocate(kMaxBytes * world,
                                           device::MemoryCategory::kArena));
  }
  RETURN_IF_ERROR((MeasureTransport<NvlinkTransport>(
      "nvlink", NvlinkTransportOptions(), rank, mailbox)));
  NcclTransportOptions nccl;
  if (number == 0) nccl.rooted_groups = {1};
  const absl::Status status =
      MeasureTransport<NcclTransport>("nccl", nccl, rank, mailbox);
  std::fflush(stdout);
  return status;
}

}  // namespace
}  // namespace weft::comm

int main(int argc, char** argv) {
  const int world = argc > 1 ? std::atoi(argv[1]) : 2;
  bool passed = true;
  for (const auto& result : weft::comm::RunProcesses(
           world, absl::Minutes(5),
           [world](int rank, weft::comm::Mailbox&mailbox) {
             return weft::comm::RunRank(rank, world, mailbox);
           })) {
    if (result.passed) continue;
    std::fprintf(stderr, "%s\n", result.message.c_str());
    passed = false;
  }
  return passed ? 0 : 1;
}
