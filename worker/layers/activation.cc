#include "worker/layers/activation.h"

#include "kernels/ops/squared_relu/squared_relu.h"
#include "kernels/ops/swiglu/swiglu.h"

namespace weft::layers {

void ActivationForward(const model::Shape& shape,
                       const ActivationForwardArgs& args,
                       device::Stream& stream) {
  if (shape.gated_mlp) {
    ops::SwigluForward(
        {args.rows, args.ffn, args.up, args.prob, args.out, args.row_count},
        stream);
  } else {
    ops::SquaredReluForward(
        {args.rows, args.ffn, args.up, args.prob, args.out, args.row_count},
        stream);
  }
}

void ActivationBackward(const model::Shape& shape,
                        const ActivationBackwardArgs& args,
                        device::Stream& stream) {
  if (shape.gated_mlp) {
    ops::SwigluBackward({args.rows, args.ffn, args.up, args.prob, args.d_out,
                         args.d_up, args.d_prob, args.row_count},
                        stream);
  } else {
    ops::SquaredReluBackward(
        {args.rows, args.ffn, args.up, args.prob, args.d_out, args.d_up,
         args.d_prob, args.row_count},
        stream);
  }
}

}  // namespace weft::layers
