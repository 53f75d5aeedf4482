#include "fsdp/runtime/initialize.h"

#include <algorithm>
#include <cstdint>

#include "kernels/ops/elementwise/elementwise.h"
#include "kernels/ops/random/random.h"

namespace weft::fsdp {
namespace {

void FillUniform(const ops::RandomRange& range, const UniformRange& uniform,
                 const device::Tensor& out, device::Stream& stream) {
  ops::RandomUniformArgs args;
  args.range = range;
  args.low = static_cast<float>(uniform.low);
  args.high = static_cast<float>(uniform.high);
  args.map = uniform.map;
  args.out = out.f32();
  ops::RandomUniform(args, stream);
}

// Zeros where `zeros` and `range`, whose elements begin at `out`, meet.
void FillZeros(const ops::RandomRange& range, const Range& zeros,
               const device::Tensor& out, device::Stream& stream) {
  const int64_t begin = std::max<int64_t>(range.begin, zeros.begin);
  const int64_t end = std::min<int64_t>(range.end, zeros.end);
  if (begin >= end) return;
  ops::FillArgs fill;
  fill.count = end - begin;
  fill.value = 0;
  fill.out = out + (begin - range.begin);
  ops::Fill(fill, stream);
}

void InitializeSegment(const InitializeArgs& args, const Segment& segment,
                       const device::Tensor& out, device::Stream& stream) {
  const Parameter& param = args.parameters[segment.param];
  ops::RandomRange range;
  range.seed = args.seed;
  range.stream_id = ops::RandomStreamId(param.name.data(), param.name.size());
  range.begin = param.global_begin + segment.param_offset;
  range.end = range.begin + segment.elements;
  if (param.init_std != 0) {
    ops::RandomNormalArgs normal;
    normal.range = range;
    normal.stddev = static_cast<float>(param.init_std);
    normal.out = out.f32();
    ops::RandomNormal(normal, stream);
    FillZeros(range, param.init_zeros, out, stream);
    return;
  }
  if (!param.init_uniform.empty()) {
    FillUniform(range, param.init_uniform, out, stream);
    return;
  }
  ops::FillArgs fill;
  fill.count = segment.elements;
  fill.value = static_cast<float>(param.init_constant);
  fill.out = out;
  ops::Fill(fill, stream);
}

}  // namespace

void InitializeWeights(const InitializeArgs& args, device::Stream& stream) {
  for (const Bucket& bucket : args.units->buckets) {
    const BucketView& weights = args.buckets->weights(bucket.id);
    for (const Segment& segment : SegmentsIn(bucket, weights.range)) {
      InitializeSegment(args, segment, weights.at(segment.bucket_offset),
                        stream);
    }
  }
}

}  // namespace weft::fsdp
