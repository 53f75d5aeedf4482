// The sharded optimizer: AdamW or SGD on what a rank holds of a bucket.
#ifndef WEFT_FSDP_RUNTIME_OPTIMIZER_H_
#define WEFT_FSDP_RUNTIME_OPTIMIZER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "fsdp/runtime/resident_buckets.h"
#include "fsdp/runtime/segments.h"
#include "fsdp/unit/unit.h"
#include "kernels/device/device.h"
#include "kernels/device/tensor.h"
#include "kernels/ops/optimizer_scalars.h"
#include "weft/v1/job.pb.h"

namespace weft::fsdp {

enum class OptimizerKind : uint8_t { kAdamW, kSgd };

// The constants of a job, defaults filled in.
struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::kAdamW;
  // AdamW only.
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double momentum = 0;   // SGD only
  double clip_norm = 0;  // 0: none
};
OptimizerSettings OptimizerSettingsOf(const v1::OptimizerConfig& config);

using ops::OptimizerScalars;
// `step` is from 1, `norm` the global gradient norm, which is finite.
OptimizerScalars ScalarsOf(const OptimizerSettings& settings,
                           double learning_rate, int64_t step, double norm);

// A run of one parameter and its state. SGD has no second moment, and without
// momentum no first one: null.
struct OptimizerSegment {
  int param = 0;
  int64_t elements = 0;
  double weight_decay = 0;
  double learning_rate_scale = 1;
  device::ConstTensor gradient;
  float* weights = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
  // [1], or-ed with all bits of weights that change; may be null.
  uint32_t* changed_bits = nullptr;
};

// The segments of what this rank updates of a bucket: all of it when the
// optimizer state is whole on every rank, else its slice. Padding is no part.
std::vector<OptimizerSegment> OptimizerSegmentsOf(
    absl::Span<const Parameter> parameters, const Bucket& bucket,
    const ResidentBuckets& buckets);

struct OptimizerWork {
  absl::Span<const OptimizerSegment> segments;
  const OptimizerSettings* settings = nullptr;
  const OptimizerScalars* scalars = nullptr;  // in memory the device reads
};
// Called from work on `stream`.
void UpdateWeights(const OptimizerWork& work, device::Stream& stream);

}  // namespace weft::fsdp

#endif  // WEFT_FSDP_RUNTIME_OPTIMIZER_H_
