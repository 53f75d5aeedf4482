#include "fsdp/runtime/optimizer.h"

#include <algorithm>
#include <cmath>

#include "kernels/ops/adamw/adamw.h"

namespace weft::fsdp {

AdamWConfig AdamWConfigOf(const v1::OptimizerConfig& config) {
  AdamWConfig out;
  if (config.has_beta1()) out.beta1 = config.beta1();
  if (config.has_beta2()) out.beta2 = config.beta2();
  if (config.epsilon() > 0) out.epsilon = config.epsilon();
  out.weight_decay = config.weight_decay();
  out.clip_norm = config.clip_norm();
  return out;
}

OptimizerScalars ScalarsOf(const AdamWConfig& config, double learning_rate,
                           int64_t step, double norm) {
  OptimizerScalars scalars;
  scalars.learning_rate = learning_rate;
  if (config.clip_norm > 0) {
    scalars.grad_scale = std::min(1.0, config.clip_norm / (norm + 1e-6));
  }
  const double at = static_cast<double>(step);
  scalars.bias1 = 1 - std::pow(config.beta1, at);
  scalars.bias2 = 1 - std::pow(config.beta2, at);
  return scalars;
}

std::vector<OptimizerSegment> OptimizerSegmentsOf(
    absl::Span<const Parameter> parameters, const Bucket& bucket,
    const ResidentBuckets& buckets, const AdamWConfig& config) {
  const BucketView& first = buckets.first_moment(bucket.id);
  const BucketView& second = buckets.second_moment(bucket.id);
  std::vector<OptimizerSegment> segments;
  for (const Segment& segment : SegmentsIn(bucket, first.range)) {
    const int64_t at = segment.bucket_offset;
    OptimizerSegment out;
    out.param = segment.param;
    out.elements = segment.elements;
    const bool decays = parameters[segment.param].decay;
    out.weight_decay = decays ? config.weight_decay : 0;
    out.gradient = buckets.gradients(bucket.id).at(at);
    out.weights = buckets.weights(bucket.id).at(at);
    out.first_moment = first.at(at);
    out.second_moment = second.at(at);
    segments.push_back(out);
  }
  return segments;
}

void UpdateWeights(const OptimizerWork& work, device::Stream& stream) {
  for (const OptimizerSegment& segment : work.segments) {
    ops::AdamWArgs args;
    args.count = segment.elements;
    args.lr = work.scalars->learning_rate;
    args.beta1 = work.config->beta1;
    args.beta2 = work.config->beta2;
    args.eps = work.config->epsilon;
    args.weight_decay = segment.weight_decay;
    args.bias1 = work.scalars->bias1;
    args.bias2 = work.scalars->bias2;
    args.grad_scale = work.scalars->grad_scale;
    args.grad = segment.gradient;
    args.w = segment.weights;
    args.m = segment.first_moment;
    args.v = segment.second_moment;
    args.changed_bits = segment.changed_bits;
    ops::AdamW(args, stream);
  }
}

}  // namespace weft::fsdp
