#include <vector>

#include "benchmark/benchmark.h"
#include "kernels/ops/cross_entropy/cross_entropy.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Floats;
using testing::InlineStream;
using testing::RandomFloats;

void BM_CrossEntropyForward(benchmark::State& state) {
  const int64_t tokens = state.range(0), vocab = state.range(1);
  const Floats logits = RandomFloats(tokens * vocab, 1);
  const std::vector<int32_t> labels(tokens, 3);
  Floats lse(tokens);
  double loss = 0;
  for (auto _ : state) {
    CrossEntropyForward({tokens, vocab, logits.data(), labels.data(),
                         lse.data(), &loss, nullptr},
                        InlineStream());
  }
  state.SetItemsProcessed(state.iterations() * tokens * vocab);
}
BENCHMARK(BM_CrossEntropyForward)->Args({512, 256})->Args({64, 32000});

void BM_CrossEntropyBackward(benchmark::State& state) {
  const int64_t tokens = state.range(0), vocab = state.range(1);
  const Floats logits = RandomFloats(tokens * vocab, 1);
  const std::vector<int32_t> labels(tokens, 3);
  Floats lse(tokens);
  Floats d_logits(logits.size());
  double loss = 0;
  CrossEntropyForward(
      {tokens, vocab, logits.data(), labels.data(), lse.data(), &loss, nullptr},
      InlineStream());
  for (auto _ : state) {
    CrossEntropyBackward({tokens, vocab, logits.data(), labels.data(),
                          lse.data(), 0.5f, d_logits.data()},
                         InlineStream());
  }
  state.SetItemsProcessed(state.iterations() * tokens * vocab);
}
BENCHMARK(BM_CrossEntropyBackward)->Args({512, 256})->Args({64, 32000});

}  // namespace
}  // namespace weft::ops

BENCHMARK_MAIN();
