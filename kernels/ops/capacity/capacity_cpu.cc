#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/ops/capacity/capacity.h"
#include "kernels/ops/cuda_form.h"

namespace weft::ops {
namespace {

float Weight(float prob) { return prob > 0 ? prob : 0; }

}  // namespace

void KeepWithinCapacity(const KeepWithinCapacityArgs& args,
                        device::Stream& stream) {
  if (RunOnCuda<&KeepWithinCapacity>(args, stream)) return;
  const int64_t slots = args.tokens * args.topk;
  int32_t* order = args.scratch;
  std::iota(order, order + slots, 0);
  std::sort(order, order + slots, [&](int32_t a, int32_t b) {
    if (args.topk_index[a] != args.topk_index[b]) {
      return args.topk_index[a] < args.topk_index[b];
    }
    const float weight_a = Weight(args.topk_prob[a]);
    const float weight_b = Weight(args.topk_prob[b]);
    return weight_a != weight_b ? weight_a > weight_b : a < b;
  });
  int64_t first = 0;  // place of the expert's first slot
  for (int64_t place = 0; place < slots; ++place) {
    const int32_t slot = order[place];
    const int32_t expert = args.topk_index[slot];
    if (expert != args.topk_index[order[first]]) first = place;
    args.kept_index[slot] = place - first < args.capacity ? expert : -1;
  }
}

void CountChoices(const CountChoicesArgs& args, device::Stream& stream) {
  if (RunOnCuda<&CountChoices>(args, stream)) return;
  std::memset(args.counts, 0, args.num_experts * sizeof(int32_t));
  for (int64_t t = 0; t < args.tokens; ++t) {
    if (args.valid != nullptr && args.valid[t] == 0) continue;
    for (int64_t j = 0; j < args.topk; ++j) {
      const int32_t expert = args.index[t * args.topk + j];
      if (expert >= 0) ++args.counts[expert];
    }
  }
}

void FillCounts(const FillCountsArgs& args, device::Stream& stream) {
  if (RunOnCuda<&FillCounts>(args, stream)) return;
  std::fill_n(args.counts, args.count, args.value);
}

void AddCounts(const AddCountsArgs& args, device::Stream& stream) {
  if (RunOnCuda<&AddCounts>(args, stream)) return;
  for (int64_t i = 0; i < args.count; ++i) {
    args.out[i] =
        (args.previous != nullptr ? args.previous[i] : 0.0) + args.x[i];
  }
}

}  // namespace weft::ops
