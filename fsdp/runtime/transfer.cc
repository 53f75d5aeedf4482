#include "fsdp/runtime/transfer.h"

#include "base/status_macros.h"
#include "kernels/ops/elementwise/elementwise.h"

namespace weft::fsdp {
namespace {

void ZeroPadding(absl::Span<const Range> padding, float* bucket,
                 device::Stream& stream) {
  for (const Range& range : padding) {
    ops::FillArgs zero;
    zero.count = range.elements();
    zero.out = bucket + range.begin;
    ops::Fill(zero, stream);
  }
}

void Copy(const float* from, int64_t elements, float* to,
          device::Stream& stream) {
  ops::CopyArgs copy;
  copy.count = elements;
  copy.x = from;
  copy.out = to;
  ops::Copy(copy, stream);
}

// sum = sum + value.
void Add(const float* value, int64_t elements, float* sum,
         device::Stream& stream) {
  ops::AddArgs add;
  add.count = elements;
  add.a = sum;
  add.b = value;
  add.out = sum;
  ops::Add(add, stream);
}

void ZeroPaddingAndScale(const ReduceWork& work, device::Stream& stream) {
  ZeroPadding(work.padding, work.gradient, stream);
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

void AddToSum(const AddWork& work, device::Stream& stream) {
  ZeroPadding(work.padding, work.gradient, stream);
  if (work.accumulate) {
    Add(work.gradient, work.elements, work.sum, stream);
    return;
  }
  Copy(work.gradient, work.elements, work.sum, stream);
}

absl::Status ReduceToShard(const ReduceWork& work, device::Stream& stream) {
  ZeroPaddingAndScale(work, stream);
  const int64_t elements = work.elements / work.comm->size();
  float* sum = work.accumulate ? work.staging : work.shard;
  RETURN_IF_ERROR(work.comm->ReduceScatter(work.gradient, sum, elements,
                                           DType::kF32, stream, work.tag));
  if (work.accumulate) Add(work.staging, elements, work.shard, stream);
  return absl::OkStatus();
}

absl::Status ReduceToOwnSlice(const ReduceWork& work, device::Stream& stream) {
  ZeroPaddingAndScale(work, stream);
  const int64_t elements = work.elements / work.comm->size();
  RETURN_IF_ERROR(work.comm->ReduceScatter(
      work.gradient, work.staging, elements, DType::kF32, stream, work.tag));
  Copy(work.staging, elements, work.shard, stream);
  return absl::OkStatus();
}

absl::Status ReduceInPlace(const ReduceWork& work, device::Stream& stream) {
  ZeroPaddingAndScale(work, stream);
  return work.comm->AllReduce(work.gradient, work.elements, DType::kF32, stream,
                              work.tag);
}

}  // namespace weft::fsdp
