#include "kernels/device/cuda/affine.h"

namespace weft::device::cuda {
namespace {

// Unsigned, because the suite lets it wrap.
__global__ void Affine(const int64_t* from, int64_t* to, uint64_t factor,
                       uint64_t addend) {
  *to = static_cast<int64_t>(static_cast<uint64_t>(*from) * factor + addend);
}

}  // namespace

void LaunchAffine(const int64_t* from, int64_t* to, int64_t factor,
                  int64_t addend, Stream& stream) {
  Affine<<<1, 1, 0, Handle(stream)>>>(from, to, factor, addend);
  CheckLaunch("Affine", stream);
}

}  // namespace weft::device::cuda
