#include "kernels/ops/cuda_form.h"
#include "kernels/ops/random/philox.h"
#include "kernels/ops/random/random.h"

namespace weft::ops {
namespace {

// `make` makes four elements of the words of a block.
template <typename Make>
void Fill(const RandomRange& range, const Make& make, float* out) {
  float values[4] = {};
  for (int64_t i = range.begin; i < range.end; ++i) {
    if (i % 4 == 0 || i == range.begin) {
      make(Philox(range.seed, static_cast<uint64_t>(i / 4), range.stream_id),
           values);
    }
    out[i - range.begin] = values[i % 4];
  }
}

}  // namespace

void RandomNormal(const RandomNormalArgs& args, device::Stream& stream) {
  if (RunOnCuda<&RandomNormal>(args, stream)) return;
  Fill(args.range, NormalBlock{args.mean, args.stddev}, args.out);
}

void RandomUniform(const RandomUniformArgs& args, device::Stream& stream) {
  if (RunOnCuda<&RandomUniform>(args, stream)) return;
  Fill(args.range, UniformBlock(args.low, args.high, args.map), args.out);
}

}  // namespace weft::ops
