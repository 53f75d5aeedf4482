// Gather, add and reduce: how a bucket moves between shards and full-size
// memory.
//
// Each function is the work of one op; its struct is filled when a program is
// lowered and must outlive the launches. Called from work on `stream`.
#ifndef WEFT_FSDP_RUNTIME_TRANSFER_H_
#define WEFT_FSDP_RUNTIME_TRANSFER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "fsdp/runtime/segments.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"
#include "kernels/device/tensor.h"

namespace weft::fsdp {

// whole = the slices of all ranks of the group, in the format of `whole`: each
// rank rounds its slice, then sends it.
struct GatherWork {
  comm::Communicator* comm = nullptr;
  device::ConstTensor slice;
  device::Tensor whole;
  int64_t slice_elements = 0;
  comm::CollectiveTag tag;
};
absl::Status Gather(const GatherWork& work, device::Stream& stream);

// sum = gradient, or sum = sum + gradient, on this rank alone. Padding is
// zeroed. The two have one format, to which every sum is rounded.
struct AddWork {
  device::Tensor gradient;  // [elements], overwritten
  device::Tensor sum;       // [elements]
  int64_t elements = 0;
  absl::Span<const Range> padding;
  bool accumulate = false;
};
void AddToSum(const AddWork& work, device::Stream& stream);

// One full-size gradient of this rank and how it becomes the mean over ranks.
//
// Padding is zeroed, then every element is multiplied by `factor` (1/world, for
// dense and expert buckets alike) once, then ranks are summed in order. A group
// of one rank takes the same path.
//
// Gradient, staging and shard have one format. In bf16 the product and the sum
// over ranks, which is taken in fp32, are rounded once each, and so is each
// addition to a shard.
struct ReduceWork {
  comm::Communicator* comm = nullptr;
  device::Tensor gradient;  // [elements], overwritten
  int64_t elements = 0;
  absl::Span<const Range> padding;
  float factor = 1;
  device::Tensor shard;     // [elements / comm->size()]; not ReduceInPlace
  device::Tensor staging;   // as many; not ReduceInPlace
  bool accumulate = false;  // ReduceToShard only
  comm::CollectiveTag tag;
};

// shard = sum, or shard = shard + sum.
absl::Status ReduceToShard(const ReduceWork& work, device::Stream& stream);

// As ReduceToShard without `accumulate`, for a shard that lies in `gradient` at
// the place of this rank's slice. The rest of `gradient` is left without
// meaning.
absl::Status ReduceToOwnSlice(const ReduceWork& work, device::Stream& stream);

// gradient = sum, on every rank.
absl::Status ReduceInPlace(const ReduceWork& work, device::Stream& stream);

}  // namespace weft::fsdp

#endif  // WEFT_FSDP_RUNTIME_TRANSFER_H_
