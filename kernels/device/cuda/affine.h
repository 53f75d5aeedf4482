// Work for the conformance suite.
#ifndef WEFT_KERNELS_DEVICE_CUDA_AFFINE_H_
#define WEFT_KERNELS_DEVICE_CUDA_AFFINE_H_

#include <cstdint>

#include "kernels/device/cuda/launch.h"

namespace weft::device::cuda {

// *to = *from * factor + addend
void LaunchAffine(const int64_t* from, int64_t* to, int64_t factor,
                  int64_t addend, Stream& stream);

}  // namespace weft::device::cuda

#endif  // WEFT_KERNELS_DEVICE_CUDA_AFFINE_H_
