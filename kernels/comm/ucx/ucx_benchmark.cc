// Latency of an all-to-all among processes over UCX, each rank waiting asleep.
//
//   bazel run -c opt //kernels/comm/ucx:ucx_benchmark
//
// Arguments: processes, bytes from each rank to each other one. The time is
// that of one AllToAllV on rank 0.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "kernels/comm/communicator.h"
#include "kernels/comm/processes.h"
#include "kernels/comm/ucx/ucx.h"
#include "kernels/device/cpu/cpu_device.h"
#include "kernels/device/device.h"

namespace weft::comm::ucx {
namespace {

constexpr int kWarmUps = 50;
// The body reports by an error, because that is what comes back of a process.
constexpr absl::string_view kReport = "CANCELLED: nanoseconds=";

absl::Status TimeAllToAll(int rank, int processes, int64_t bytes, int64_t turns,
                          Mailbox& mailbox) {
  ASSIGN_OR_RETURN(auto device, device::CreateCpuDevice({}));
  ASSIGN_OR_RETURN(auto stream, device->CreateStream("ep"));
  UcxTransportOptions options;
  options.name = "ep";
  options.rank = rank;
  options.world = processes;
  options.device = device.get();
  ASSIGN_OR_RETURN(auto transport, UcxTransport::Create(options));
  RETURN_IF_ERROR(transport->Connect(mailbox.Exchange(transport->address())));
  std::vector<int> all;
  std::vector<Segment> segments;
  for (int r = 0; r < processes; ++r) {
    all.push_back(r);
    segments.push_back({r, r * bytes, bytes});
  }
  ASSIGN_OR_RETURN(auto comm, transport->CreateCommunicator("ep", 1, all));
  std::vector<char> sent(bytes * processes), received(bytes * processes);
  std::chrono::steady_clock::time_point start;
  for (int64_t turn = -kWarmUps; turn < turns; ++turn) {
    if (turn == 0) start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(comm->AllToAllV(sent.data(), segments, received.data(),
                                    segments, *stream, {"benchmark"}));
  }
  const std::chrono::nanoseconds taken =
      std::chrono::steady_clock::now() - start;
  mailbox.Exchange("done");
  if (rank != 0) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat("nanoseconds=", taken.count()));
}

void BM_AllToAll(benchmark::State& state) {
  const int processes = static_cast<int>(state.range(0));
  const int64_t bytes = state.range(1);
  const int64_t turns = static_cast<int64_t>(state.max_iterations);
  const auto results = RunProcesses(
      processes, absl::Minutes(5), [&](int rank, Mailbox& mailbox) {
        return TimeAllToAll(rank, processes, bytes, turns, mailbox);
      });
  absl::string_view report = results[0].message;
  int64_t nanoseconds = 0;
  if (report.substr(0, kReport.size()) != kReport ||
      !absl::SimpleAtoi(report.substr(kReport.size()), &nanoseconds)) {
    state.SkipWithError(results[0].message.c_str());
    return;
  }
  for (auto _ : state) {
    state.SetIterationTime(static_cast<double>(nanoseconds) / 1e9 /
                           static_cast<double>(turns));
  }
  state.SetBytesProcessed(turns * bytes * (processes - 1));
}

BENCHMARK(BM_AllToAll)
    ->ArgsProduct({{2, 4}, {1 << 10, 64 << 10, 1 << 20}})
    ->UseManualTime()
    ->Iterations(500)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace weft::comm::ucx

BENCHMARK_MAIN();
