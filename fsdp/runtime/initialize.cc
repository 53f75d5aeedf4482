#include "fsdp/runtime/initialize.h"

#include "kernels/ops/elementwise/elementwise.h"
#include "kernels/ops/random/random.h"

namespace weft::fsdp {
namespace {

void InitializeSegment(const InitializeArgs& args, const Segment& segment,
                       const device::Tensor& out, device::Stream& stream) {
  const Parameter& param = args.parameters[segment.param];
  if (param.init_std == 0) {
    ops::FillArgs fill;
    fill.count = segment.elements;
    fill.value = static_cast<float>(param.init_constant);
    fill.out = out;
    ops::Fill(fill, stream);
    return;
  }
  ops::RandomNormalArgs normal;
  normal.range.seed = args.seed;
  normal.range.stream_id =
      ops::RandomStreamId(param.name.data(), param.name.size());
  normal.range.begin = param.global_begin + segment.param_offset;
  normal.range.end = normal.range.begin + segment.elements;
  normal.stddev = static_cast<float>(param.init_std);
  normal.out = out.f32();
  ops::RandomNormal(normal, stream);
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
