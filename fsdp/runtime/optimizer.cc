#include "fsdp/runtime/optimizer.h"

#include <algorithm>
#include <cmath>

#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/sgd/sgd.h"

namespace weft::fsdp {
namespace {

void UpdateAdamW(const OptimizerSegment& segment, const OptimizerWork& work,
                 device::Stream& stream) {
  ops::AdamWArgs args;
  args.count = segment.elements;
  args.scalars = work.scalars;
  args.learning_rate_scale = segment.learning_rate_scale;
  args.beta1 = work.settings->beta1;
  args.beta2 = work.settings->beta2;
  args.eps = work.settings->epsilon;
  args.weight_decay = segment.weight_decay;
  args.grad = segment.gradient;
  args.w = segment.weights;
  args.m = segment.first_moment;
  args.v = segment.second_moment;
  args.changed_bits = segment.changed_bits;
  ops::AdamW(args, stream);
}

void UpdateSgd(const OptimizerSegment& segment, const OptimizerWork& work,
               device::Stream& stream) {
  ops::SgdArgs args;
  args.count = segment.elements;
  args.scalars = work.scalars;
  args.learning_rate_scale = segment.learning_rate_scale;
  args.momentum = work.settings->momentum;
  args.weight_decay = segment.weight_decay;
  args.grad = segment.gradient;
  args.w = segment.weights;
  args.m = segment.first_moment;
  args.changed_bits = segment.changed_bits;
  ops::Sgd(args, stream);
}

// The run of a moment that begins at `bucket_offset`; null when there is none.
float* MomentAt(const BucketView& moment, int64_t bucket_offset) {
  return moment.data == nullptr ? nullptr : moment.f32(bucket_offset);
}

}  // namespace

OptimizerSettings OptimizerSettingsOf(const v1::OptimizerConfig& config) {
  OptimizerSettings out;
  if (config.kind() == v1::OPTIMIZER_KIND_SGD) out.kind = OptimizerKind::kSgd;
  if (config.has_beta1()) out.beta1 = config.beta1();
  if (config.has_beta2()) out.beta2 = config.beta2();
  if (config.epsilon() > 0) out.epsilon = config.epsilon();
  out.momentum = config.momentum();
  out.clip_norm = config.clip_norm();
  return out;
}

OptimizerScalars ScalarsOf(const OptimizerSettings& settings,
                           double learning_rate, int64_t step, double norm) {
  OptimizerScalars scalars;
  scalars.learning_rate = learning_rate;
  if (settings.clip_norm > 0) {
    scalars.grad_scale = std::min(1.0, settings.clip_norm / (norm + 1e-6));
  }
  const double at = static_cast<double>(step);
  scalars.bias1 = 1 - std::pow(settings.beta1, at);
  scalars.bias2 = 1 - std::pow(settings.beta2, at);
  return scalars;
}

std::vector<OptimizerSegment> OptimizerSegmentsOf(
    absl::Span<const Parameter> parameters, const Bucket& bucket,
    const ResidentBuckets& buckets) {
  std::vector<OptimizerSegment> segments;
  for (const Segment& segment :
       SegmentsIn(bucket, buckets.optimized(bucket.id))) {
    const int64_t at = segment.bucket_offset;
    const Parameter& parameter = parameters[segment.param];
    OptimizerSegment out;
    out.param = segment.param;
    out.elements = segment.elements;
    out.weight_decay = parameter.weight_decay;
    out.learning_rate_scale = parameter.learning_rate_scale;
    out.gradient = buckets.gradients(bucket.id).at(at);
    out.weights = buckets.weights(bucket.id).f32(at);
    out.first_moment = MomentAt(buckets.first_moment(bucket.id), at);
    out.second_moment = MomentAt(buckets.second_moment(bucket.id), at);
    segments.push_back(out);
  }
  return segments;
}

void UpdateWeights(const OptimizerWork& work, device::Stream& stream) {
  for (const OptimizerSegment& segment : work.segments) {
    switch (work.settings->kind) {
      case OptimizerKind::kAdamW:
        UpdateAdamW(segment, work, stream);
        break;
      case OptimizerKind::kSgd:
        UpdateSgd(segment, work, stream);
        break;
    }
  }
}

}  // namespace weft::fsdp
