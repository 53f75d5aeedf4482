// Writes what a rank holds of the main weights as safetensors fragments.
#ifndef WEFT_WORKER_EXEC_PARAMETER_FILE_H_
#define WEFT_WORKER_EXEC_PARAMETER_FILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "fsdp/runtime/resident_buckets.h"
#include "fsdp/runtime/segments.h"
#include "fsdp/unit/unit.h"
#include "kernels/device/device.h"

namespace weft::exec {

struct ParameterFileArgs {
  const fsdp::UnitAssignment* units = nullptr;
  fsdp::World world;
  int rank = 0;
  absl::Span<const fsdp::Parameter> parameters;
  const fsdp::ResidentBuckets* buckets = nullptr;
  device::Device* device = nullptr;
  device::Stream* stream = nullptr;  // idle
};

// Tensor "<param>@<begin>" holds elements [begin, begin + n) of the whole
// model's flattened parameter. A fragment that several ranks hold is written by
// the lowest of them, so that all files together hold every element once. The
// file's metadata says `rank` and `world`.
absl::Status WriteParameterFile(const ParameterFileArgs& args,
                                const std::string& path);

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_PARAMETER_FILE_H_
