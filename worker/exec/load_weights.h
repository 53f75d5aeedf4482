// Fills a rank's main weights from InitialWeights.
#ifndef WEFT_WORKER_EXEC_LOAD_WEIGHTS_H_
#define WEFT_WORKER_EXEC_LOAD_WEIGHTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "fsdp/runtime/resident_buckets.h"
#include "fsdp/runtime/segments.h"
#include "fsdp/unit/unit.h"
#include "kernels/device/device.h"
#include "model/declaration.h"
#include "worker/exec/initial_weights.h"

namespace weft::exec {

struct LoadWeightsArgs {
  const model::ModelDecl* model = nullptr;
  const fsdp::UnitAssignment* units = nullptr;
  const fsdp::ResidentBuckets* buckets = nullptr;
  absl::Span<const fsdp::Parameter> parameters;  // as model->params
  device::Device* device = nullptr;
  device::Stream* stream = nullptr;  // idle
  // Most elements read at once, hence of host memory beside the weights; at
  // least 1.
  int64_t piece_elements = int64_t{1} << 20;
};

// Reads what this rank holds of the weights, each element once and nothing
// else, and leaves their padding, which is zero. Returns when the weights are
// on the device. What `from` says, with the parameter's name; the device's
// error soon after it has failed.
absl::Status LoadWeights(const InitialWeights& from,
                         const LoadWeightsArgs& args);

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_LOAD_WEIGHTS_H_
