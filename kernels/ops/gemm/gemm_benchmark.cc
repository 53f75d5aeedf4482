#include "benchmark/benchmark.h"
#include "kernels/ops/gemm/gemm.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Floats;
using testing::InlineStream;
using testing::RandomFloats;

// rows, in, out
void Shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"rows", "in", "out"});
  b->Args({512, 128, 256});  // qkv of a small model
  b->Args({512, 128, 128});
  b->Args({128, 128, 512});  // one expert of a small model
  b->Args({128, 256, 128});
  b->Args({32, 128, 512});
  b->Args({4, 128, 512});
  b->Args({1, 128, 512});
  b->Args({512, 128, 8});  // router
  b->Args({1024, 1024, 1024});
}

void SetFlops(benchmark::State& state) {
  state.counters["flops"] =
      benchmark::Counter(2.0 * state.range(0) * state.range(1) *
                             state.range(2) * state.iterations(),
                         benchmark::Counter::kIsRate);
}

void BM_LinearForward(benchmark::State& state) {
  const int64_t rows = state.range(0), in = state.range(1),
                out = state.range(2);
  const Floats x = RandomFloats(rows * in, 1);
  const Floats w = RandomFloats(out * in, 2);
  Floats y(rows * out);
  for (auto _ : state) {
    LinearForward({rows, in, out, x.data(), w.data(), y.data()},
                  InlineStream());
  }
  SetFlops(state);
}
BENCHMARK(BM_LinearForward)->Apply(Shapes);

void BM_LinearDgrad(benchmark::State& state) {
  const int64_t rows = state.range(0), in = state.range(1),
                out = state.range(2);
  const Floats dy = RandomFloats(rows * out, 1);
  const Floats w = RandomFloats(out * in, 2);
  Floats dx(rows * in);
  for (auto _ : state) {
    LinearDgrad({rows, in, out, dy.data(), w.data(), dx.data()},
                InlineStream());
  }
  SetFlops(state);
}
BENCHMARK(BM_LinearDgrad)->Apply(Shapes);

template <bool accumulate>
void BM_LinearWgrad(benchmark::State& state) {
  const int64_t rows = state.range(0), in = state.range(1),
                out = state.range(2);
  const Floats dy = RandomFloats(rows * out, 1);
  const Floats x = RandomFloats(rows * in, 2);
  Floats dw(out * in);
  for (auto _ : state) {
    LinearWgrad({rows, in, out, dy.data(), x.data(), dw.data(), accumulate},
                InlineStream());
  }
  SetFlops(state);
}
BENCHMARK_TEMPLATE(BM_LinearWgrad, false)->Apply(Shapes);
BENCHMARK_TEMPLATE(BM_LinearWgrad, true)->Apply(Shapes);

}  // namespace
}  // namespace weft::ops

BENCHMARK_MAIN();
