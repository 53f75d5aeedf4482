// A 64-bit checksum of memory, to compare what ranks hold alike.
#ifndef WEFT_KERNELS_OPS_CHECKSUM_CHECKSUM_H_
#define WEFT_KERNELS_OPS_CHECKSUM_CHECKSUM_H_

#include <cstdint>

#include "kernels/ops/stream.h"

namespace weft::ops {

// out = sum over i of mix(word i + (i + 1) * 0x9e3779b97f4a7c15) mod 2^64, or
// out + that with `accumulate`. Words are 32 bits, the last padded with zeros;
// mix is the finalizer of splitmix64 (Steele, Lea and Flood 2014), which is one
// to one: a change within one word always changes the sum, any other change but
// for one in 2^64. The sum has no order, so a device may take it in any.
struct ChecksumArgs {
  int64_t bytes = 0;
  const void* x = nullptr;  // [bytes]
  uint64_t* out = nullptr;  // [1]; of no bytes: 0
  bool accumulate = false;
};
void Checksum(const ChecksumArgs& args, device::Stream& stream);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_CHECKSUM_CHECKSUM_H_
