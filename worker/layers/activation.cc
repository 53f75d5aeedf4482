#include "worker/layers/activation.h"

#include "kernels/ops/gelu/gelu.h"
#include "kernels/ops/squared_relu/squared_relu.h"
#include "kernels/ops/swiglu/swiglu.h"

namespace weft::layers {

void ActivationForward(const model::Shape& shape,
                       const ActivationForwardArgs& args,
                       device::Stream& stream) {
  switch (shape.activation) {
    case model::Activation::kSwiglu:
      return ops::SwigluForward(
          {args.rows, args.ffn, args.up, args.prob, args.out, args.row_count},
          stream);
    case model::Activation::kSquaredRelu:
      return ops::SquaredReluForward(
          {args.rows, args.ffn, args.up, args.prob, args.out, args.row_count},
          stream);
    case model::Activation::kGelu:
      return ops::GeluForward(
          {args.rows, args.ffn, args.up, args.prob, args.out, args.row_count},
          stream);
  }
}

void ActivationBackward(const model::Shape& shape,
                        const ActivationBackwardArgs& args,
                        device::Stream& stream) {
  switch (shape.activation) {
    case model::Activation::kSwiglu:
      return ops::SwigluBackward(
          {args.rows, args.ffn, args.up, args.prob, args.d_out, args.d_up,
           args.d_prob, args.row_count},
          stream);
    case model::Activation::kSquaredRelu:
      return ops::SquaredReluBackward(
          {args.rows, args.ffn, args.up, args.prob, args.d_out, args.d_up,
           args.d_prob, args.row_count},
          stream);
    case model::Activation::kGelu:
      return ops::GeluBackward(
          {args.rows, args.ffn, args.up, args.prob, args.d_out, args.d_up,
           args.d_prob, args.row_count},
          stream);
  }
}

}  // namespace weft::layers
