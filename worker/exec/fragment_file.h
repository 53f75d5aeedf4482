// Writes what a rank holds of the main weights, or of the gradients, as
// safetensors fragments.
#ifndef WEFT_WORKER_EXEC_FRAGMENT_FILE_H_
#define WEFT_WORKER_EXEC_FRAGMENT_FILE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "fsdp/runtime/resident_buckets.h"
#include "fsdp/runtime/segments.h"
#include "fsdp/unit/unit.h"
#include "kernels/device/device.h"

namespace weft::exec {

// Numbers in host memory that all ranks hold alike.
struct HostTensor {
  std::string name;
  absl::Span<const float> values;
};

struct FragmentFileArgs {
  const fsdp::UnitAssignment* units = nullptr;
  fsdp::World world;
  int rank = 0;
  absl::Span<const fsdp::Parameter> parameters;
  // By bucket, what the rank holds of it: its slice, or, like every rank of the
  // bucket's group, all of it.
  absl::Span<const fsdp::BucketView> held;
  std::vector<HostTensor> alike;  // rank 0 writes them
  std::optional<int64_t> step;    // that made the values
  device::Device* device = nullptr;
  device::Stream* stream = nullptr;  // idle
};

// The main weights of a rank, as `held`.
std::vector<fsdp::BucketView> HeldWeights(const fsdp::UnitAssignment& units,
                                          const fsdp::ResidentBuckets& buckets);

// The gradients that the optimizer of a rank reads, as `held`; none of frozen
// parameters. After a step
// they are the mean over ranks, not clipped: the optimizer leaves them as they
// are.
std::vector<fsdp::BucketView> HeldGradients(
    const fsdp::UnitAssignment& units, const fsdp::ResidentBuckets& buckets);

// Writes `<folder>/rank-<rank, 5 digits>.safetensors`. Tensor "<param>@<begin>"
// holds elements [begin, begin + n) of the whole model's flattened parameter,
// in fp32 whatever the format of what is held. A fragment that several ranks
// hold is written by the lowest of them, so that all files together hold every
// element once. The file's metadata says `rank` and `world`, and `step` when it
// is set.
//
// Errors of the device and of the file system; RESOURCE_EXHAUSTED when the
// host's memory does not suffice.
absl::Status WriteFragmentFile(const FragmentFileArgs& args,
                               absl::string_view folder);

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_FRAGMENT_FILE_H_
