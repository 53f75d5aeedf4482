#include "benchmark/benchmark.h"
#include "kernels/ops/attention/attention.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Floats;
using testing::InlineStream;
using testing::RandomFloats;

void Shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"batch", "seq", "heads", "kv_heads", "head_dim"});
  b->Args({4, 128, 4, 2, 32});  // a small model
  b->Args({1, 128, 4, 2, 32});
  b->Args({4, 256, 8, 2, 64});
  b->Args({1, 2048, 8, 2, 128});
}

AttentionShape ShapeOf(const benchmark::State& state) {
  return {state.range(0), state.range(1), state.range(2),
          state.range(3), state.range(4), 0.125f};
}

// Of the causal half alone: two products forward, five backward.
void SetFlops(benchmark::State& state, int products) {
  const AttentionShape s = ShapeOf(state);
  const double pairs = 0.5 * s.seq * (s.seq + 1) * s.batch * s.num_heads;
  state.counters["flops"] = benchmark::Counter(
      2.0 * products * pairs * s.head_dim * state.iterations(),
      benchmark::Counter::kIsRate);
}

struct Tensors {
  explicit Tensors(const AttentionShape& s)
      : qkv(RandomFloats(s.tokens() * s.qkv_width(), 1)),
        d_out(RandomFloats(s.tokens() * s.out_width(), 2)),
        out(d_out.size()),
        lse(s.tokens() * s.num_heads),
        d_qkv(qkv.size()),
        scratch(AttentionBackwardScratchElements(s)) {}
  Floats qkv, d_out, out, lse, d_qkv, scratch;
};

void BM_AttentionForward(benchmark::State& state) {
  const AttentionShape s = ShapeOf(state);
  Tensors t(s);
  for (auto _ : state) {
    AttentionForward(
        {s, t.qkv.data(), t.out.data(), t.lse.data(), t.scratch.data()},
        InlineStream());
  }
  SetFlops(state, 2);
}
BENCHMARK(BM_AttentionForward)->Apply(Shapes);

void BM_AttentionBackward(benchmark::State& state) {
  const AttentionShape s = ShapeOf(state);
  Tensors t(s);
  AttentionForward(
      {s, t.qkv.data(), t.out.data(), t.lse.data(), t.scratch.data()},
      InlineStream());
  for (auto _ : state) {
    AttentionBackward({s, t.qkv.data(), t.out.data(), t.lse.data(),
                       t.d_out.data(), t.d_qkv.data(), t.scratch.data()},
                      InlineStream());
  }
  SetFlops(state, 5);
}
BENCHMARK(BM_AttentionBackward)->Apply(Shapes);

}  // namespace
}  // namespace weft::ops

BENCHMARK_MAIN();
