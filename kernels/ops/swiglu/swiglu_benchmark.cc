#include "benchmark/benchmark.h"
#include "kernels/ops/swiglu/swiglu.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Floats;
using testing::InlineStream;
using testing::RandomFloats;

void BM_SwigluForward(benchmark::State& state) {
  const int64_t rows = state.range(0), ffn = state.range(1);
  const Floats gate_up = RandomFloats(rows * 2 * ffn, 1);
  const Floats prob = RandomFloats(rows, 2);
  Floats out(rows * ffn);
  for (auto _ : state) {
    SwigluForward({rows, ffn, gate_up.data(), prob.data(), out.data()},
                  InlineStream());
  }
  state.SetItemsProcessed(state.iterations() * rows * ffn);
}
BENCHMARK(BM_SwigluForward)->Args({128, 256})->Args({1024, 256});

void BM_SwigluBackward(benchmark::State& state) {
  const int64_t rows = state.range(0), ffn = state.range(1);
  const Floats gate_up = RandomFloats(rows * 2 * ffn, 1);
  const Floats prob = RandomFloats(rows, 2);
  const Floats d_out = RandomFloats(rows * ffn, 3);
  Floats d_gate_up(gate_up.size());
  Floats d_prob(rows);
  for (auto _ : state) {
    SwigluBackward({rows, ffn, gate_up.data(), prob.data(), d_out.data(),
                    d_gate_up.data(), d_prob.data()},
                   InlineStream());
  }
  state.SetItemsProcessed(state.iterations() * rows * ffn);
}
BENCHMARK(BM_SwigluBackward)->Args({128, 256})->Args({1024, 256});

}  // namespace
}  // namespace weft::ops

BENCHMARK_MAIN();
