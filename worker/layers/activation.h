// The activation between the two projections of a feed-forward: SwiGLU or
// squared ReLU, as the shape says.
#ifndef WEFT_WORKER_LAYERS_ACTIVATION_H_
#define WEFT_WORKER_LAYERS_ACTIVATION_H_

#include <cstdint>

#include "kernels/device/device.h"
#include "model/shape.h"

namespace weft::layers {

// [U] is shape.up_columns(ffn).
struct ActivationForwardArgs {
  int64_t rows = 0;
  int64_t ffn = 0;
  const float* up = nullptr;    // [rows, U]
  const float* prob = nullptr;  // [rows] factor of each row, or null: 1
  float* out = nullptr;         // [rows, ffn]
};
void ActivationForward(const model::Shape& shape,
                       const ActivationForwardArgs& args,
                       device::Stream& stream);

struct ActivationBackwardArgs {
  int64_t rows = 0;
  int64_t ffn = 0;
  const float* up = nullptr;     // [rows, U]
  const float* prob = nullptr;   // [rows], or null: 1
  const float* d_out = nullptr;  // [rows, ffn]
  float* d_up = nullptr;         // [rows, U]
  float* d_prob = nullptr;       // [rows], or null: not wanted
};
void ActivationBackward(const model::Shape& shape,
                        const ActivationBackwardArgs& args,
                        device::Stream& stream);

}  // namespace weft::layers

#endif  // WEFT_WORKER_LAYERS_ACTIVATION_H_
