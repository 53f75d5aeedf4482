#include <cmath>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/random/random.h"

namespace weft::ops {
namespace {

struct Words {
  uint32_t w[4];
};

// Philox4x32-10.
Words Philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53u;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u;
  constexpr uint32_t kWeyl1 = 0xBB67AE85u;
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  Words c = {{static_cast<uint32_t>(counter_low),
              static_cast<uint32_t>(counter_low >> 32),
              static_cast<uint32_t>(counter_high),
              static_cast<uint32_t>(counter_high >> 32)}};
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * c.w[0];
    const uint64_t product1 = kMultiplier1 * c.w[2];
    c = {{static_cast<uint32_t>(product1 >> 32) ^ c.w[1] ^ key0,
          static_cast<uint32_t>(product1),
          static_cast<uint32_t>(product0 >> 32) ^ c.w[3] ^ key1,
          static_cast<uint32_t>(product0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

// In (0, 1), never either end.
double OpenUnit(uint32_t word) { return (word + 0.5) * 0x1p-32; }

// Two standard normals (Box-Muller).
void NormalPair(uint32_t a, uint32_t b, double* out) {
  constexpr double kTwoPi = 6.283185307179586;
  const double radius = std::sqrt(-2.0 * std::log(OpenUnit(a)));
  const double angle = kTwoPi * OpenUnit(b);
  out[0] = radius * std::cos(angle);
  out[1] = radius * std::sin(angle);
}

// Calls write(i, value) for element begin + i of the range; `transform` makes
// four values of the words of a block.
template <typename Transform, typename Write>
void ForEachElement(const RandomRange& range, Transform&& transform,
                    Write&& write) {
  double values[4] = {};
  for (int64_t i = range.begin; i < range.end; ++i) {
    if (i % 4 == 0 || i == range.begin) {
      transform(
          Philox(range.seed, static_cast<uint64_t>(i / 4), range.stream_id),
          values);
    }
    write(i - range.begin, values[i % 4]);
  }
}

}  // namespace

void RandomNormal(const RandomNormalArgs& args, device::Stream& stream) {
  if (RunOnCuda<&RandomNormal>(args, stream)) return;
  ForEachElement(
      args.range,
      [](const Words& words, double* values) {
        NormalPair(words.w[0], words.w[1], values);
        NormalPair(words.w[2], words.w[3], values + 2);
      },
      [&](int64_t i, double value) {
        args.out[i] = static_cast<float>(args.mean + args.stddev * value);
      });
}

void RandomUniform(const RandomUniformArgs& args, device::Stream& stream) {
  if (RunOnCuda<&RandomUniform>(args, stream)) return;
  const float width = args.high - args.low;
  const float last = std::nextafter(args.high, args.low);
  ForEachElement(
      args.range,
      [](const Words& words, double* values) {
        for (int j = 0; j < 4; ++j) values[j] = (words.w[j] >> 8) * 0x1p-24;
      },
      [&](int64_t i, double value) {
        const float x = args.low + width * static_cast<float>(value);
        args.out[i] = x < args.high ? x : last;
      });
}

}  // namespace weft::ops
