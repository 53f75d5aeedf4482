// Counter-based random fills: element i of a tensor is a function of
// (seed, stream id, i), however the tensor is cut among ranks.
//
// Philox4x32-10 (Salmon et al., 2011): the key is the seed, the counter is
// (i / 4, stream id). Its four words make elements 4j .. 4j+3: two Box-Muller
// pairs, or four uniforms. Every device makes the same bits.
#ifndef WEFT_KERNELS_OPS_RANDOM_RANDOM_H_
#define WEFT_KERNELS_OPS_RANDOM_RANDOM_H_

#include <cstddef>
#include <cstdint>

#include "base/uniform.h"
#include "kernels/ops/stream.h"

namespace weft::ops {

// 64-bit FNV-1a of a parameter's name, to use as its stream id.
constexpr uint64_t RandomStreamId(const char* name, size_t size) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < size; ++i) {
    hash = (hash ^ static_cast<unsigned char>(name[i])) * 0x100000001b3ull;
  }
  return hash;
}

// Elements [begin, end) of a tensor, written to out[0 .. end - begin).
// Requires: 0 <= begin <= end.
struct RandomRange {
  uint64_t seed = 0;
  uint64_t stream_id = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// Normal with the given mean and standard deviation.
struct RandomNormalArgs {
  RandomRange range;
  float mean = 0.0f;
  float stddev = 1.0f;
  float* out = nullptr;  // [end - begin]
};
void RandomNormal(const RandomNormalArgs& args, device::Stream& stream);

// `map` of numbers uniform in [low, high). Requires: low > 0 for kLog; both in
// [-300, 3] for kInverseSoftplusOfExp.
struct RandomUniformArgs {
  RandomRange range;
  float low = 0.0f;
  float high = 1.0f;
  float* out = nullptr;  // [end - begin]
  UniformMap map = UniformMap::kIdentity;
};
void RandomUniform(const RandomUniformArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_RANDOM_RANDOM_H_
