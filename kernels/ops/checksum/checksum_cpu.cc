#include <algorithm>
#include <cstring>

#include "kernels/ops/checksum/checksum.h"
#include "kernels/ops/cuda_form.h"

namespace weft::ops {
namespace {

constexpr int64_t kWord = sizeof(uint32_t);

uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

void Checksum(const ChecksumArgs& args, device::Stream& stream) {
  if (RunOnCuda<&Checksum>(args, stream)) return;
  const char* x = static_cast<const char*>(args.x);
  uint64_t sum = 0;
  uint64_t place = 0;
  for (int64_t at = 0; at < args.bytes; at += kWord) {
    uint32_t word = 0;
    std::memcpy(&word, x + at, std::min(kWord, args.bytes - at));
    place += 0x9e3779b97f4a7c15;
    sum += Mix(word + place);
  }
  *args.out = args.accumulate ? *args.out + sum : sum;
}

}  // namespace weft::ops
