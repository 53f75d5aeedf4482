// How rows of experts are dealt out to warps: one warp computes a token, and
// lane l holds experts l, l + 32, ... in registers.
#ifndef WEFT_KERNELS_OPS_ROUTER_WARP_ROWS_CUDA_CUH_
#define WEFT_KERNELS_OPS_ROUTER_WARP_ROWS_CUDA_CUH_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/math/cuda.cuh"

namespace weft::ops {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;
inline constexpr int kWarps = 8;  // of a block
inline constexpr int kThreads = 32 * kWarps;

// See router_cpu.cc.
inline constexpr float kLeastSum = 1e-20f;

// Calls f with how many experts a lane holds, as a constant.
template <typename F>
inline void WithExpertsPerLane(int64_t experts, device::Stream& stream, F&& f) {
  const int64_t needed = cuda::CeilDiv(experts, 32);
  if (needed <= 1) return f(std::integral_constant<int, 1>());
  if (needed <= 2) return f(std::integral_constant<int, 2>());
  if (needed <= 4) return f(std::integral_constant<int, 4>());
  if (needed <= 8) return f(std::integral_constant<int, 8>());
  if (needed <= 16) return f(std::integral_constant<int, 16>());
  if (needed <= 128) return f(std::integral_constant<int, 128>());
  device::cuda::Fail("the router has more than 4096 experts", stream);
}

inline int64_t Blocks(int64_t tokens, device::Stream& stream) {
  const int64_t resident = int64_t{8} * device::cuda::SmCount(stream);
  return std::clamp<int64_t>(cuda::CeilDiv(tokens, kWarps), 1, resident);
}

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_ROUTER_WARP_ROWS_CUDA_CUH_
