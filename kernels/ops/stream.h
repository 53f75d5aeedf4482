// What every op header says about streams and number formats, in one place.
//
// An op is a free function whose last argument is the stream it runs on. On the
// CPU it is called on the stream's thread and computes before it returns; on
// CUDA it enqueues. Ops never allocate, lock, log or fail: each states what it
// requires and the caller, who prepared the step, checks it once. Pointers of
// an Args struct are memory of the device. Ranges must not overlap unless a
// comment says they may. Sizes may be zero; a zero-sized op writes nothing
// unless its comment says otherwise.
//
// Same inputs give the same bits: sums run in an order that depends on sizes
// alone, never on alignment or on the number of threads.
//
// A Tensor is fp32 or bf16; a `float*` is fp32. Whatever the formats, an op
// computes in fp32 (or fp64, where its comment says so), every sum included,
// and rounds a result once, to the nearest even, when it is written.
//
// `accumulate` means `dst = dst + value`, where `value` is what the same call
// without `accumulate` would have written, and the sum is rounded once more: so
// a gradient summed in place has the bits of one computed apart and added.
#ifndef WEFT_KERNELS_OPS_STREAM_H_
#define WEFT_KERNELS_OPS_STREAM_H_

#include "kernels/device/tensor.h"

namespace weft::device {
class Stream;
}  // namespace weft::device

namespace weft::ops {
using device::ConstTensor;
using device::Tensor;
}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_STREAM_H_
