// A block an expert. The key of its last slot that stays is found digit by
// digit, from the highest on; then slots are kept in order.
#include "kernels/device/cuda/launch.h"
#include "kernels/ops/capacity/capacity.h"
#include "kernels/ops/cuda_form.h"

namespace weft::ops {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;  // values of one
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// Orders as probabilities do.
__device__ uint32_t KeyOf(float prob) {
  return prob > 0 ? __float_as_uint(prob) : 0;
}

// The slots that stay: all with a greater key, and the first `equal` of the
// others.
struct Bound {
  uint32_t key;
  int64_t equal;
};

// counts[d] = slots of the expert whose key begins as `prefix` does above
// `shift` + kDigitBits and has digit d there.
__device__ void CountDigits(const KeepWithinCapacityArgs& args, int expert,
                            uint32_t prefix, int shift, int* counts) {
  for (int d = threadIdx.x; d < kDigits; d += kThreads) counts[d] = 0;
  __syncthreads();
  const int64_t slots = args.tokens * args.topk;
  for (int64_t s = threadIdx.x; s < slots; s += kThreads) {
    if (args.topk_index[s] != expert) continue;
    const uint32_t key = KeyOf(args.topk_prob[s]);
    const bool fits =
        shift + kDigitBits == 32 || (key ^ prefix) >> (shift + kDigitBits) == 0;
    if (fits) atomicAdd(&counts[key >> shift & (kDigits - 1)], 1);
  }
  __syncthreads();
}

// Computed by every thread alike. An expert with fewer slots than fit gets a
// bound of key 0 that all of them meet.
__device__ Bound FindBound(const KeepWithinCapacityArgs& args, int expert) {
  __shared__ int counts[kDigits];
  Bound bound = {0, args.capacity};
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    CountDigits(args, expert, bound.key, shift, counts);
    if (shift + kDigitBits == 32) {
      int64_t slots = 0;
      for (int d = 0; d < kDigits; ++d) slots += counts[d];
      if (slots <= args.capacity) return bound;
    }
    int digit = kDigits - 1;
    while (digit > 0 && counts[digit] < bound.equal) {
      bound.equal -= counts[digit--];
    }
    bound.key |= static_cast<uint32_t>(digit) << shift;
    __syncthreads();
  }
  return bound;
}

// How many threads of the block before this one have `flag`; `all` is how many
// have it. All threads take part.
__device__ int FlagsBefore(bool flag, int* all) {
  __shared__ int of_warp[kWarps];
  const int warp = threadIdx.x / 32;
  const unsigned flags = __ballot_sync(kAllLanes, flag);
  if (threadIdx.x % 32 == 0) of_warp[warp] = __popc(flags);
  __syncthreads();
  int before = __popc(flags & ((1u << (threadIdx.x % 32)) - 1));
  *all = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += of_warp[w];
    *all += of_warp[w];
  }
  __syncthreads();
  return before;
}

__global__ void __launch_bounds__(kThreads) Keep(KeepWithinCapacityArgs args) {
  const int expert = blockIdx.x;
  const Bound bound = FindBound(args, expert);
  const int64_t slots = args.tokens * args.topk;
  int64_t equal_before = 0;
  for (int64_t begin = 0; begin < slots; begin += kThreads) {
    const int64_t s = begin + threadIdx.x;
    const bool is_own = s < slots && args.topk_index[s] == expert;
    const uint32_t key = is_own ? KeyOf(args.topk_prob[s]) : 0;
    int equal = 0;
    const int before = FlagsBefore(is_own && key == bound.key, &equal);
    if (is_own) {
      const bool stays =
          key > bound.key ||
          (key == bound.key && equal_before + before < bound.equal);
      args.kept_index[s] = stays ? expert : -1;
    }
    equal_before += equal;
  }
}

// counts[e] for a block an expert.
__global__ void __launch_bounds__(kThreads) Count(CountChoicesArgs args) {
  __shared__ int total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  const int expert = blockIdx.x;
  const int64_t slots = args.tokens * args.topk;
  int own = 0;
  for (int64_t s = threadIdx.x; s < slots; s += kThreads) {
    const bool counts = args.valid == nullptr || args.valid[s / args.topk] != 0;
    own += counts && args.index[s] == expert;
  }
  atomicAdd(&total, own);
  __syncthreads();
  if (threadIdx.x == 0) args.counts[expert] = total;
}

__global__ void __launch_bounds__(kThreads) Add(AddCountsArgs args) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.count) return;
  args.out[i] = (args.previous != nullptr ? args.previous[i] : 0.0) + args.x[i];
}

__global__ void __launch_bounds__(kThreads) Fill(FillCountsArgs args) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < args.count) args.counts[i] = args.value;
}

int64_t Blocks(int64_t count) { return (count + kThreads - 1) / kThreads; }

void RunKeep(const KeepWithinCapacityArgs& args, device::Stream& stream) {
  if (args.tokens == 0) return;
  Keep<<<args.num_experts, kThreads, 0, device::cuda::Handle(stream)>>>(args);
  device::cuda::CheckLaunch("KeepWithinCapacity", stream);
}

void RunCount(const CountChoicesArgs& args, device::Stream& stream) {
  Count<<<args.num_experts, kThreads, 0, device::cuda::Handle(stream)>>>(args);
  device::cuda::CheckLaunch("CountChoices", stream);
}

void RunFill(const FillCountsArgs& args, device::Stream& stream) {
  if (args.count == 0) return;
  Fill<<<Blocks(args.count), kThreads, 0, device::cuda::Handle(stream)>>>(args);
  device::cuda::CheckLaunch("FillCounts", stream);
}

void RunAdd(const AddCountsArgs& args, device::Stream& stream) {
  if (args.count == 0) return;
  Add<<<Blocks(args.count), kThreads, 0, device::cuda::Handle(stream)>>>(args);
  device::cuda::CheckLaunch("AddCounts", stream);
}

[[maybe_unused]] const bool kRegistered[] = {
    RegisterCudaForm<&KeepWithinCapacity>(&RunKeep),
    RegisterCudaForm<&CountChoices>(&RunCount),
    RegisterCudaForm<&FillCounts>(&RunFill),
    RegisterCudaForm<&AddCounts>(&RunAdd)};

}  // namespace
}  // namespace weft::ops
