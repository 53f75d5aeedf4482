// Time of a training step of all ranks on this machine, and where it goes: busy
// time by kind of op, summed over ranks, as counters in milliseconds a step.
// Time to prepare the engine of one rank for a plan of many ops.
//
//   bazel run -c opt //worker/exec:engine_benchmark
#include <sys/resource.h>

#include <map>
#include <string>
#include <utility>

#include "benchmark/benchmark.h"
#include "worker/exec/testing/local_world.h"

namespace weft::exec {
namespace {

using testing::LocalWorld;
using testing::LocalWorldOptions;

// The sizes of the example job moe_text.
v1::TrainingJob TextJob(int world, int ep) {
  v1::TrainingJob job;
  v1::ModelConfig& model = *job.mutable_model();
  model.set_vocab_size(256);
  model.set_hidden_size(128);
  model.set_num_layers(4);
  model.mutable_attention()->set_num_heads(4);
  model.mutable_attention()->set_num_kv_heads(2);
  model.mutable_attention()->set_head_dim(32);
  v1::MoeConfig& moe = *model.mutable_moe();
  moe.set_num_experts(8);
  moe.set_top_k(2);
  moe.set_expert_hidden_size(256);
  moe.set_shared_expert_hidden_size(128);
  job.mutable_data()->set_sequence_length(128);
  job.mutable_parallel()->set_world(world);
  job.mutable_parallel()->set_ep(ep);
  job.mutable_batch()->set_microbatch(4);
  job.mutable_batch()->set_global_batch(64);
  job.mutable_schedule()->set_delay_wgrad(true);
  job.mutable_optimizer()->set_learning_rate(1e-3);
  job.set_steps(1000);
  return job;
}

double CpuSeconds() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
         1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

std::string KindOf(const LocalWorld& world, const schedule::Op& op) {
  if (op.kind != schedule::OpKind::kNode) return schedule::Name(op.kind);
  return std::string(Name(world.plan().model.node(op.layer, op.node).kind)) +
         "." + Name(op.phase);
}

void TrainingStep(benchmark::State& state) {
  LocalWorldOptions options;
  options.job = TextJob(state.range(0), state.range(1));
  options.released_memory = ReleasedMemory::kKeep;
  auto world = LocalWorld::Create(std::move(options));
  if (!world.ok() || !(*world)->RunSteps(1).ok()) {
    state.SkipWithError("the world does not start");
    return;
  }
  std::map<std::string, double> busy_ms;
  const double begin = CpuSeconds();
  for (auto _ : state) {
    auto results = (*world)->RunSteps(1);
    for (const auto& rank : *results) {
      for (const Span& span : rank[0].spans) {
        const schedule::Op& op = (*world)->plan().train.ops[span.op];
        busy_ms[KindOf(**world, op)] += 1e-6 * (span.end_ns - span.begin_ns);
      }
    }
  }
  const double steps = static_cast<double>(state.iterations());
  state.counters["cpu_ms"] = 1e3 * (CpuSeconds() - begin) / steps;
  for (const auto& [kind, ms] : busy_ms) state.counters[kind] = ms / steps;
}
BENCHMARK(TrainingStep)
    ->ArgNames({"world", "ep"})
    ->Args({1, 1})
    ->Args({4, 2})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// From the compiled plan to an engine that is ready.
void Preparation(benchmark::State& state) {
  testing::TinyJob tiny;
  tiny.layers = state.range(0);
  tiny.microbatches = state.range(1);
  for (auto _ : state) {
    int64_t begin_ns = 0;
    LocalWorldOptions options;
    options.job = MakeJob(tiny);
    options.released_memory = static_cast<ReleasedMemory>(state.range(2));
    options.edit = [&](schedule::Program& program) {
      state.counters["ops"] = program.ops.size();
      begin_ns = RealClock().MonotonicNanos();
    };
    options.trust_edit = true;  // proven when it was compiled
    auto world = LocalWorld::Create(std::move(options));
    if (!world.ok()) {
      state.SkipWithError("the world does not start");
      return;
    }
    state.SetIterationTime(1e-9 * (RealClock().MonotonicNanos() - begin_ns));
  }
}
BENCHMARK(Preparation)
    ->ArgNames({"layers", "microbatches", "released_memory"})
    ->Args({24, 16, 0})
    ->Args({94, 64, 0})
    ->Args({94, 64, 1})
    ->Args({1024, 32, 0})
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weft::exec

BENCHMARK_MAIN();
