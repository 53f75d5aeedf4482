// The activation between the two projections of a feed-forward: as the
// shape says.
#ifndef WEFT_WORKER_LAYERS_ACTIVATION_H_
#define WEFT_WORKER_LAYERS_ACTIVATION_H_

#include <cstdint>

#include "kernels/device/device.h"
#include "kernels/device/tensor.h"
#include "model/shape.h"

namespace weft::layers {

// [U] is shape.up_columns(ffn).
struct ActivationForwardArgs {
  int64_t rows = 0;
  int64_t ffn = 0;
  device::ConstTensor up;              // [rows, U]
  const float* prob = nullptr;         // [rows] factor of each row, or null: 1
  device::Tensor out;                  // [rows, ffn]
  const int64_t* row_count = nullptr;  // see kernels/ops/math/row_count.h
};
void ActivationForward(const model::Shape& shape,
                       const ActivationForwardArgs& args,
                       device::Stream& stream);

struct ActivationBackwardArgs {
  int64_t rows = 0;
  int64_t ffn = 0;
  device::ConstTensor up;              // [rows, U]
  const float* prob = nullptr;         // [rows], or null: 1
  device::ConstTensor d_out;           // [rows, ffn]
  device::Tensor d_up;                 // [rows, U]
  float* d_prob = nullptr;             // [rows], or null: not wanted
  const int64_t* row_count = nullptr;  // see kernels/ops/math/row_count.h
};
void ActivationBackward(const model::Shape& shape,
                        const ActivationBackwardArgs& args,
                        device::Stream& stream);

}  // namespace weft::layers

#endif  // WEFT_WORKER_LAYERS_ACTIVATION_H_
