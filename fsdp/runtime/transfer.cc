#include "fsdp/runtime/transfer.h"

#include "base/status_macros.h"
#include "kernels/ops/elementwise/elementwise.h"

namespace weft::fsdp {
namespace {

using device::ConstTensor;
using device::Tensor;

void ZeroPadding(absl::Span<const Range> padding, const Tensor& bucket,
                 device::Stream& stream) {
  for (const Range& range : padding) {
    ops::FillArgs zero;
    zero.count = range.elements();
    zero.out = bucket + range.begin;
    ops::Fill(zero, stream);
  }
}

void Copy(const ConstTensor& from, int64_t elements, const Tensor& to,
          device::Stream& stream) {
  ops::CopyArgs copy;
  copy.count = elements;
  copy.x = from;
  copy.out = to;
  ops::Copy(copy, stream);
}

// sum = sum + value.
void Add(const ConstTensor& value, int64_t elements, const Tensor& sum,
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
  ConstTensor slice = work.slice;
  if (slice.dtype != work.whole.dtype) {
    const Tensor own = work.whole + work.comm->rank() * work.slice_elements;
    Copy(slice, work.slice_elements, own, stream);
    slice = own;
  }
  return work.comm->AllGather(slice.data, work.whole.data,
                              work.slice_elements * SizeOf(slice.dtype), stream,
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
  const Tensor& sum = work.accumulate ? work.staging : work.shard;
  RETURN_IF_ERROR(work.comm->ReduceScatter(
      work.gradient.data, sum.data, elements, sum.dtype, stream, work.tag));
  if (work.accumulate) Add(work.staging, elements, work.shard, stream);
  return absl::OkStatus();
}

absl::Status ReduceToOwnSlice(const ReduceWork& work, device::Stream& stream) {
  ZeroPaddingAndScale(work, stream);
  const int64_t elements = work.elements / work.comm->size();
  RETURN_IF_ERROR(
      work.comm->ReduceScatter(work.gradient.data, work.staging.data, elements,
                               work.gradient.dtype, stream, work.tag));
  Copy(work.staging, elements, work.shard, stream);
  return absl::OkStatus();
}

absl::Status ReduceInPlace(const ReduceWork& work, device::Stream& stream) {
  ZeroPaddingAndScale(work, stream);
  return work.comm->AllReduce(work.gradient.data, work.elements,
                              work.gradient.dtype, stream, work.tag);
}

}  // namespace weft::fsdp
