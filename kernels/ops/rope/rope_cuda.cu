// A thread rotates the same elements of a few heads of one token, so that it
// reads their angles once.
#include <algorithm>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/pack.cuh"
#include "kernels/ops/rope/rope.h"

namespace weft::ops {
namespace {

using cuda::Elements;
using cuda::Floats;
using cuda::kPack;
using cuda::Pack;

constexpr int kHeads = 4;  // of a thread
constexpr int kThreads = 256;

// How the threads of a block share out tokens: a thread's job is a pack of the
// first half of each of kHeads heads, and its partner in the second half.
struct Cuts {
  int packs = 0;         // of half a head
  int jobs = 0;          // of a token
  int block_tokens = 0;  // tokens of a block
};

Cuts CutTokens(const RopeArgs& args) {
  const int64_t packs = cuda::CeilDiv(args.rot_dim / 2, kPack);
  const int64_t groups =
      cuda::CeilDiv(args.num_heads + args.num_kv_heads, kHeads);
  Cuts cuts;
  cuts.packs = static_cast<int>(packs);
  cuts.jobs = static_cast<int>(packs * groups);
  cuts.block_tokens = std::max(kThreads / std::max(cuts.jobs, 1), 1);
  return cuts;
}

// x rotated by the angle: c and s are its cosine and sine.
__device__ void Rotate(const Floats& c, const Floats& s, Floats* re,
                       Floats* im) {
#pragma unroll
  for (int j = 0; j < kPack; ++j) {
    const float a = re->v[j];
    const float b = im->v[j];
    re->v[j] = fmaf(a, c.v[j], -__fmul_rn(b, s.v[j]));
    im->v[j] = fmaf(b, c.v[j], __fmul_rn(a, s.v[j]));
  }
}

template <typename T, bool kAligned>
__device__ void RotateHeads(const RopeArgs& args, float direction,
                            int64_t token, int64_t first_head, int64_t at) {
  const int64_t half = args.rot_dim / 2;
  const int64_t left = half - at;
  const int64_t heads = args.num_heads + args.num_kv_heads;
  T* x = Elements<T>(args.qkv) +
         (token * (heads + args.num_kv_heads) + first_head) * args.head_dim +
         at;
  Pack<T> re[kHeads];
  Pack<T> im[kHeads];
#pragma unroll
  for (int k = 0; k < kHeads; ++k) {
    if (first_head + k >= heads) break;
    re[k] = cuda::LoadPack<kAligned>(x + k * args.head_dim, left);
    im[k] = cuda::LoadPack<kAligned>(x + k * args.head_dim + half, left);
  }
  const int64_t angle = token % args.seq * half + at;
  const Floats c = Widen(cuda::LoadPack<kAligned>(args.cos + angle, left));
  Floats s = Widen(cuda::LoadPack<kAligned>(args.sin + angle, left));
#pragma unroll
  for (int j = 0; j < kPack; ++j) s.v[j] *= direction;
#pragma unroll
  for (int k = 0; k < kHeads; ++k) {
    if (first_head + k >= heads) break;
    Floats a = Widen(re[k]);
    Floats b = Widen(im[k]);
    Rotate(c, s, &a, &b);
    cuda::StoreFloats<kAligned>(a, x + k * args.head_dim, left);
    cuda::StoreFloats<kAligned>(b, x + k * args.head_dim + half, left);
  }
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    RotateKernel(const RopeArgs args, float direction, const Cuts cuts) {
  const int64_t first_token =
      static_cast<int64_t>(blockIdx.x) * cuts.block_tokens;
  const int jobs = cuts.block_tokens * cuts.jobs;
  for (int job = threadIdx.x; job < jobs; job += kThreads) {
    const int64_t token = first_token + job / cuts.jobs;
    if (token >= args.tokens) return;
    const int of_token = job % cuts.jobs;
    const int64_t head = of_token / cuts.packs * kHeads;
    RotateHeads<T, kAligned>(args, direction, token, head,
                             of_token % cuts.packs * kPack);
  }
}

void Rotate(const RopeArgs& args, float direction, device::Stream& stream) {
  const Cuts cuts = CutTokens(args);
  if (args.tokens == 0 || cuts.jobs == 0) return;
  const bool aligned =
      args.head_dim % kPack == 0 &&
      cuda::PacksAligned(args.rot_dim / 2, args.qkv.data, args.cos, args.sin);
  const int64_t blocks = cuda::CeilDiv(args.tokens, cuts.block_tokens);
  cuda::WithFormat(args.qkv.dtype, aligned, [&](auto type, auto is_aligned) {
    RotateKernel<decltype(type), is_aligned.value>
        <<<blocks, kThreads, 0, device::cuda::Handle(stream)>>>(args, direction,
                                                                cuts);
  });
  device::cuda::CheckLaunch("Rope", stream);
}

void Forward(const RopeArgs& args, device::Stream& stream) {
  Rotate(args, 1.0f, stream);
}

void Backward(const RopeArgs& args, device::Stream& stream) {
  Rotate(args, -1.0f, stream);
}

[[maybe_unused]] const bool kForward = RegisterCudaForm<&RopeForward>(&Forward);
[[maybe_unused]] const bool kBackward =
    RegisterCudaForm<&RopeBackward>(&Backward);

}  // namespace
}  // namespace weft::ops
