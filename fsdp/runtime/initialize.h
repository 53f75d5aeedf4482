// Initial weights.
//
// Every element is a function of (seed, parameter name, its place in the whole
// model's parameter): worlds, EP sizes and strategies start from equal weights.
#ifndef WEFT_FSDP_RUNTIME_INITIALIZE_H_
#define WEFT_FSDP_RUNTIME_INITIALIZE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "fsdp/runtime/resident_buckets.h"
#include "fsdp/runtime/segments.h"
#include "fsdp/unit/unit.h"
#include "kernels/device/device.h"

namespace weft::fsdp {

struct InitializeArgs {
  const UnitAssignment* units = nullptr;
  const ResidentBuckets* buckets = nullptr;
  absl::Span<const Parameter> parameters;
  uint64_t seed = 0;
};

// Fills the resident weights and leaves their padding, which is zero. Called
// from work on `stream`.
void InitializeWeights(const InitializeArgs& args, device::Stream& stream);

}  // namespace weft::fsdp

#endif  // WEFT_FSDP_RUNTIME_INITIALIZE_H_
