// Compiling and verifying large plans. Run by hand:
//   bazel run //schedule:compile_benchmark
#include "benchmark/benchmark.h"
#include "schedule/plan.h"

namespace weft::schedule {
namespace {

// The sizes of DeepSeek-V3 with plain attention on 2,048 ranks.
v1::TrainingJob LargeJob(int layers, int microbatches) {
  v1::TrainingJob job;
  v1::ModelConfig* model = job.mutable_model();
  model->set_vocab_size(129280);
  model->set_hidden_size(7168);
  model->set_num_layers(layers);
  model->mutable_attention()->set_num_heads(128);
  model->mutable_attention()->set_head_dim(128);
  model->mutable_moe()->set_num_experts(256);
  model->mutable_moe()->set_top_k(8);
  model->mutable_moe()->set_expert_hidden_size(2048);
  model->mutable_moe()->set_shared_expert_hidden_size(2048);
  job.mutable_data()->set_sequence_length(4096);
  job.mutable_parallel()->set_world(2048);
  job.mutable_parallel()->set_ep(64);
  job.mutable_batch()->set_microbatch(1);
  job.mutable_batch()->set_global_batch(2048 * microbatches);
  job.mutable_schedule()->set_delay_wgrad(true);
  return job;
}

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
    wire_bytes = ToProto(plan->train).ByteSizeLong();
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
