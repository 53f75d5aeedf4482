// Compiling and verifying large plans. Run by hand:
//   bazel run //schedule:compile_benchmark
#include "benchmark/benchmark.h"
#include "schedule/plan.h"
#include "schedule/testing/jobs.h"

namespace weft::schedule {
namespace {

void BM_CompileAndVerify(benchmark::State& state) {
  const v1::TrainingJob job = LargeJob(state.range(0), state.range(1));
  int64_t ops = 0;
  int64_t wire_bytes = 0;
  for (auto _ : state) {
    absl::StatusOr<Plan> plan = Compile(job);
    if (!plan.ok()) {
      state.SkipWithError(plan.status().ToString().c_str());
      return;
    }
    ops = plan->train.ops.size();
    state.PauseTiming();
    wire_bytes = ToProto(*plan, plan->train).ByteSizeLong();
    state.ResumeTiming();
  }
  state.counters["ops"] = ops;
  state.counters["wire_bytes"] = wire_bytes;
}
BENCHMARK(BM_CompileAndVerify)
    ->Args({4, 4})
    ->Args({16, 16})
    ->Args({61, 64})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weft::schedule

BENCHMARK_MAIN();
