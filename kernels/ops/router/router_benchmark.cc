#include <vector>

#include "benchmark/benchmark.h"
#include "kernels/ops/router/router.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Floats;
using testing::InlineStream;
using testing::RandomFloats;

struct Tensors {
  Tensors(int64_t tokens, const RouterConfig& c)
      : logits(RandomFloats(tokens * c.num_experts, 1)),
        scores(logits.size()),
        prob(tokens * c.topk),
        d_prob(RandomFloats(prob.size(), 2)),
        d_logits(logits.size()),
        index(prob.size()),
        counts(c.num_experts) {}
  Floats logits, scores, prob, d_prob, d_logits;
  std::vector<int32_t> index, counts;
};

void BM_Router(benchmark::State& state, bool backward) {
  const int64_t tokens = state.range(0);
  RouterConfig c;
  c.num_experts = state.range(1);
  c.topk = state.range(2);
  Tensors t(tokens, c);
  RouterForward({c, tokens, t.logits.data(), t.scores.data(), t.index.data(),
                 t.prob.data(), t.counts.data()},
                InlineStream());
  for (auto _ : state) {
    if (backward) {
      RouterBackward({c, tokens, t.scores.data(), t.index.data(), t.prob.data(),
                      t.d_prob.data(), nullptr, t.d_logits.data()},
                     InlineStream());
    } else {
      RouterForward({c, tokens, t.logits.data(), t.scores.data(),
                     t.index.data(), t.prob.data(), t.counts.data()},
                    InlineStream());
    }
  }
  state.SetItemsProcessed(state.iterations() * tokens);
}
BENCHMARK_CAPTURE(BM_Router, forward, false)
    ->Args({512, 8, 2})
    ->Args({512, 256, 8});
BENCHMARK_CAPTURE(BM_Router, backward, true)
    ->Args({512, 8, 2})
    ->Args({512, 256, 8});

}  // namespace
}  // namespace weft::ops

BENCHMARK_MAIN();
