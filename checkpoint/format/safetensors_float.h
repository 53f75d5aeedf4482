// Elements of floating-point tensors as f32.
#ifndef WEFT_CHECKPOINT_FORMAT_SAFETENSORS_FLOAT_H_
#define WEFT_CHECKPOINT_FORMAT_SAFETENSORS_FLOAT_H_

#include <cstdint>

#include "absl/types/span.h"
#include "checkpoint/format/safetensors_file.h"
#include "checkpoint/format/safetensors_type.h"

namespace weft::checkpoint {

// Whether f32 holds every value of the type, and CopyAsF32 takes it: F32, BF16
// and F16.
bool IsReadAsF32(SafetensorsType type);

// Copies elements [begin, begin + out.size()) of a tensor. Exact; NaNs stay
// NaNs.
// Requires: IsReadAsF32(tensor.type), and the range lies inside the tensor.
// Thread-safe.
void CopyAsF32(const SafetensorsView& tensor, int64_t begin,
               absl::Span<float> out);

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_SAFETENSORS_FLOAT_H_
