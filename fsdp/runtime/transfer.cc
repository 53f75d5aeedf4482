#include "fsdp/runtime/transfer.h"

#include "base/status_macros.h"
#include "kernels/ops/elementwise/elementwise.h"

namespace weft::fsdp {
namespace {

void ZeroPaddingAndScale(const ReduceWork& work, device::Stream& stream) {
  for (const Range& range : work.padding) {
    ops::FillArgs zero;
    zero.count = range.elements();
    zero.out = work.gradient + range.begin;
    ops::Fill(zero, stream);
  }
  ops::ScaleArgs scale;
  scale.count = work.elements;
  scale.factor = work.factor;
  scale.x = work.gradient;
  scale.out = work.gradient;
  ops::Scale(scale, stream);
}

}  // namespace

absl::Status Gather(const GatherWork& work, device::Stream& stream) {
  return work.comm->AllGather(
      work.slice, work.whole,
      work.slice_elements * static_cast<int64_t>(sizeof(float)), stream,
      work.tag);
}

absl::Status ReduceToShard(const ReduceWork& work, device::Stream& stream) {
  ZeroPaddingAndScale(work, stream);
  const int64_t elements = work.elements / work.comm->size();
  float* sum = work.accumulate ? work.staging : work.shard;
  RETURN_IF_ERROR(work.comm->ReduceScatter(work.gradient, sum, elements,
                                           DType::kF32, stream, work.tag));
  if (!work.accumulate) return absl::OkStatus();
  ops::AddArgs add;
  add.count = elements;
  add.a = work.shard;
  add.b = work.staging;
  add.out = work.shard;
  ops::Add(add, stream);
  return absl::OkStatus();
}

absl::Status ReduceInPlace(const ReduceWork& work, device::Stream& stream) {
  ZeroPaddingAndScale(work, stream);
  return work.comm->AllReduce(work.gradient, work.elements, DType::kF32, stream,
                              work.tag);
}

}  // namespace weft::fsdp
