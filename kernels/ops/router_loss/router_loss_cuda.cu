#include <algorithm>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/fold.cuh"
#include "kernels/ops/router_loss/router_loss.h"

namespace weft::ops {
namespace {

using cuda::kFoldThreads;
using device::cuda::CheckLaunch;
using device::cuda::Handle;

// Tokens that are summed apart, before those sums are.
constexpr int64_t kChunk = 256;
constexpr int64_t kZChunk = 32;  // the same for the z-loss, which costs more
constexpr int kWarps = kFoldThreads / 32;

int64_t Chunks(int64_t tokens) { return cuda::Chunks(tokens, kChunk); }

// Blocks of kFoldThreads in which each warp takes a row.
int64_t RowBlocks(int64_t rows, device::Stream& stream) {
  const int64_t resident = int64_t{8} * device::cuda::SmCount(stream);
  return std::clamp<int64_t>(cuda::CeilDiv(rows, kWarps), 1, resident);
}

__device__ double Weighed(double factor, const float* weight) {
  return weight == nullptr ? factor : factor * *weight;
}

__device__ bool IsValid(const int32_t* valid, int64_t token) {
  return valid == nullptr || valid[token] != 0;
}

struct WriteScaled {
  double factor;
  const float* weight;
  double* out;
  __device__ void operator()(double sum) const {
    *out = Weighed(factor, weight) * sum;
  }
};

// A warp a token.
__global__ void __launch_bounds__(kFoldThreads)
    WriteLossInputs(LossInputsArgs args) {
  const int64_t experts = args.num_experts;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  for (; t < args.tokens; t += stride) {
    const bool is_valid = IsValid(args.valid, t);
    const float* scores = args.scores + t * experts;
    float sum = 0;
    for (int64_t e = threadIdx.x % 32; e < experts; e += 32) sum += scores[e];
    sum = args.normalize ? cuda::WarpSum(sum) + 1e-20f : 1.0f;
    for (int64_t e = threadIdx.x % 32; e < experts; e += 32) {
      args.out_scores[t * experts + e] = is_valid ? scores[e] / sum : 0.0f;
    }
    if (args.out_index == nullptr) continue;
    for (int64_t j = threadIdx.x % 32; j < args.topk; j += 32) {
      const int64_t at = t * args.topk + j;
      args.out_index[at] = is_valid ? args.index[at] : -1;
    }
  }
}

__global__ void Convert(CountsToFloatsArgs args) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < args.padded) args.out[i] = i < args.count ? args.x[i] : 0.0f;
}

// loss = factor * sum_i counts[i] * sums[i], by one block.
template <typename Count>
__global__ void __launch_bounds__(kFoldThreads)
    Dot(const Count* counts, const double* sums, int64_t count,
        WriteScaled write) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kFoldThreads) {
    sum = fma(static_cast<double>(counts[i]), sums[i], sum);
  }
  sum = cuda::FoldBlock(sum, cuda::Plus());
  if (threadIdx.x == 0) write(sum);
}

// counts[block] = how often the tokens of a chunk of a group chose each expert.
__global__ void __launch_bounds__(kFoldThreads)
    CountChoices(GroupBalanceLossArgs args, int64_t chunks, int* counts) {
  extern __shared__ int of_chunk[];
  const int64_t experts = args.num_experts;
  for (int e = threadIdx.x; e < experts; e += kFoldThreads) of_chunk[e] = 0;
  __syncthreads();
  const int64_t begin = blockIdx.x % chunks * kChunk;
  const int64_t end =
      begin + kChunk < args.tokens ? begin + kChunk : args.tokens;
  const int32_t* index =
      args.topk_index + blockIdx.x / chunks * args.tokens * args.topk;
  for (int64_t i = begin * args.topk + threadIdx.x; i < end * args.topk;
       i += kFoldThreads) {
    if (index[i] >= 0) atomicAdd(&of_chunk[index[i]], 1);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += kFoldThreads) {
    counts[blockIdx.x * experts + e] = of_chunk[e];
  }
}

// d_scores[t, e] (+)= factor * counts[t / tokens, e]
template <typename Count>
__global__ void __launch_bounds__(kFoldThreads)
    SpreadCounts(int64_t rows, int64_t tokens, int64_t experts, double factor,
                 const float* weight, const int32_t* valid, const Count* counts,
                 bool accumulate, float* d_scores) {
  factor = Weighed(factor, weight);
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  for (; row < rows; row += stride) {
    const double of_row = IsValid(valid, row) ? factor : 0.0;
    const Count* of_group = counts + row / tokens * experts;
    float* out = d_scores + row * experts;
    for (int64_t e = threadIdx.x % 32; e < experts; e += 32) {
      const float grad =
          static_cast<float>(of_row * static_cast<double>(of_group[e]));
      out[e] = accumulate ? out[e] + grad : grad;
    }
  }
}

// log(sum(exp(x))) of one row in fp64, in every lane of the warp.
__device__ double LogSumExp(const float* x, int64_t count) {
  float max = x[0];
  for (int64_t e = threadIdx.x % 32; e < count; e += 32) max = fmaxf(max, x[e]);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    max = fmaxf(max, __shfl_xor_sync(0xFFFFFFFFu, max, step));
  }
  double sum = 0;
  for (int64_t e = threadIdx.x % 32; e < count; e += 32) {
    sum += exp(x[e] - static_cast<double>(max));
  }
  return max + log(cuda::WarpSum(sum));
}

// partials[block] = sum of lse^2 over a chunk of tokens.
__global__ void __launch_bounds__(kFoldThreads)
    SumZ(ZLossArgs args, double* partials) {
  const int64_t begin = int64_t{blockIdx.x} * kZChunk;
  const int64_t end =
      begin + kZChunk < args.tokens ? begin + kZChunk : args.tokens;
  double sum = 0;
  for (int64_t t = begin + threadIdx.x / 32; t < end; t += kWarps) {
    const double lse =
        LogSumExp(args.logits + t * args.num_experts, args.num_experts);
    if (threadIdx.x % 32 != 0) continue;
    args.lse[t] = static_cast<float>(lse);
    if (IsValid(args.valid, t)) sum = fma(lse, lse, sum);
  }
  sum = cuda::FoldBlock(sum, cuda::Plus());
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kFoldThreads) AddZGrad(ZGradArgs args) {
  const double factor = Weighed(args.factor, args.weight);
  const int64_t experts = args.num_experts;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  for (; t < args.tokens; t += stride) {
    if (!IsValid(args.valid, t)) continue;
    const float lse = args.lse[t];
    const float scale = static_cast<float>(factor * 2 * lse);
    for (int64_t e = threadIdx.x % 32; e < experts; e += 32) {
      const int64_t at = t * experts + e;
      const float softmax = args.scores != nullptr
                                ? args.scores[at]
                                : expf(args.logits[at] - lse);
      args.d_logits[at] = fmaf(scale, softmax, args.d_logits[at]);
    }
  }
}

// sums[g, e] = sum of the scores of expert e over the tokens of group g.
// `partials` has room for [groups, Chunks(tokens), num_experts].
void SumScores(const float* scores, int64_t groups, int64_t tokens,
               int64_t experts, double* partials, double* sums,
               device::Stream& stream) {
  const int64_t chunks = Chunks(tokens);
  cuda::SumRows(scores, groups, tokens, experts, kChunk, partials, stream);
  cuda::SumRows(partials, groups, chunks, experts, chunks, sums, stream);
}

void RunLossInputs(const LossInputsArgs& args, device::Stream& stream) {
  if (args.tokens == 0) return;
  WriteLossInputs<<<RowBlocks(args.tokens, stream), kFoldThreads, 0,
                    Handle(stream)>>>(args);
  CheckLaunch("LossInputs", stream);
}

void RunScoreSums(const ScoreSumsArgs& args, device::Stream& stream) {
  auto* partials = static_cast<double*>(device::cuda::Workspace(
      stream, Chunks(args.tokens) * args.num_experts * sizeof(double)));
  if (partials == nullptr) return;
  SumScores(args.scores, 1, args.tokens, args.num_experts, partials, args.sums,
            stream);
}

void RunCountsToFloats(const CountsToFloatsArgs& args, device::Stream& stream) {
  if (args.padded == 0) return;
  Convert<<<cuda::CeilDiv(args.padded, kFoldThreads), kFoldThreads, 0,
            Handle(stream)>>>(args);
  CheckLaunch("CountsToFloats", stream);
}

void RunBalanceLoss(const BalanceLossArgs& args, device::Stream& stream) {
  Dot<<<1, kFoldThreads, 0, Handle(stream)>>>(
      args.counts, args.sums, args.num_experts,
      WriteScaled{args.factor, args.weight, args.loss});
  CheckLaunch("BalanceLoss", stream);
}

void RunBalanceGrad(const BalanceGradArgs& args, device::Stream& stream) {
  if (args.tokens == 0) return;
  SpreadCounts<<<RowBlocks(args.tokens, stream), kFoldThreads, 0,
                 Handle(stream)>>>(args.tokens, args.tokens, args.num_experts,
                                   args.factor, args.weight, args.valid,
                                   args.counts, args.accumulate, args.d_scores);
  CheckLaunch("BalanceGrad", stream);
}

// Memory of GroupBalanceLoss.
struct GroupScratch {
  double* sums;      // [groups, num_experts]
  double* partials;  // [groups, chunks, num_experts]
  int* counts;       // the same
};

// False, and the device fails, when there is not enough.
bool TakeScratch(const GroupBalanceLossArgs& args, GroupScratch* scratch,
                 device::Stream& stream) {
  const int64_t sums = args.groups * args.num_experts;
  const int64_t partials = sums * Chunks(args.tokens);
  auto* at = static_cast<char*>(device::cuda::Workspace(
      stream, (sums + partials) * sizeof(double) + partials * sizeof(int)));
  if (at == nullptr) return false;
  scratch->sums = reinterpret_cast<double*>(at);
  scratch->partials = scratch->sums + sums;
  scratch->counts = reinterpret_cast<int*>(scratch->partials + partials);
  return true;
}

void RunGroupBalanceLoss(const GroupBalanceLossArgs& args,
                         device::Stream& stream) {
  const int64_t experts = args.num_experts;
  const int64_t chunks = Chunks(args.tokens);
  GroupScratch scratch = {};
  if (!TakeScratch(args, &scratch, stream)) return;
  if (args.groups > 0) {
    CountChoices<<<args.groups * chunks, kFoldThreads, experts * sizeof(int),
                   Handle(stream)>>>(args, chunks, scratch.counts);
    CheckLaunch("GroupBalanceLoss", stream);
  }
  cuda::SumRows(scratch.counts, args.groups, chunks, experts, chunks,
                args.counts, stream);
  SumScores(args.scores, args.groups, args.tokens, experts, scratch.partials,
            scratch.sums, stream);
  Dot<<<1, kFoldThreads, 0, Handle(stream)>>>(
      args.counts, scratch.sums, args.groups * experts,
      WriteScaled{args.factor, args.weight, args.loss});
  CheckLaunch("GroupBalanceLoss", stream);
}

void RunGroupBalanceGrad(const GroupBalanceGradArgs& args,
                         device::Stream& stream) {
  const int64_t rows = args.groups * args.tokens;
  if (rows == 0) return;
  SpreadCounts<<<RowBlocks(rows, stream), kFoldThreads, 0, Handle(stream)>>>(
      rows, args.tokens, args.num_experts, args.factor, args.weight, args.valid,
      args.counts, args.accumulate, args.d_scores);
  CheckLaunch("GroupBalanceGrad", stream);
}

void RunZLoss(const ZLossArgs& args, device::Stream& stream) {
  const int64_t chunks = cuda::Chunks(args.tokens, kZChunk);
  auto* partials = static_cast<double*>(
      device::cuda::Workspace(stream, chunks * sizeof(double)));
  if (partials == nullptr) return;
  SumZ<<<chunks, kFoldThreads, 0, Handle(stream)>>>(args, partials);
  CheckLaunch("ZLoss", stream);
  cuda::Fold(partials, chunks, 0.0, cuda::Plus(),
             WriteScaled{args.factor, args.weight, args.loss}, stream);
}

void RunZGrad(const ZGradArgs& args, device::Stream& stream) {
  if (args.tokens == 0) return;
  AddZGrad<<<RowBlocks(args.tokens, stream), kFoldThreads, 0, Handle(stream)>>>(
      args);
  CheckLaunch("ZGrad", stream);
}

[[maybe_unused]] const bool kRegistered[] = {
    RegisterCudaForm<&LossInputs>(&RunLossInputs),
    RegisterCudaForm<&ScoreSums>(&RunScoreSums),
    RegisterCudaForm<&CountsToFloats>(&RunCountsToFloats),
    RegisterCudaForm<&BalanceLoss>(&RunBalanceLoss),
    RegisterCudaForm<&BalanceGrad>(&RunBalanceGrad),
    RegisterCudaForm<&GroupBalanceLoss>(&RunGroupBalanceLoss),
    RegisterCudaForm<&GroupBalanceGrad>(&RunGroupBalanceGrad),
    RegisterCudaForm<&ZLoss>(&RunZLoss),
    RegisterCudaForm<&ZGrad>(&RunZGrad)};

}  // namespace
}  // namespace weft::ops
