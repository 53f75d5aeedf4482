#include "worker/exec/fragment_file.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "checkpoint/format/safetensors_writer.h"
#include "kernels/ops/elementwise/elementwise.h"

namespace weft::exec {
namespace {

// One fragment in host memory.
struct Fragment {
  std::string name;
  device::ConstTensor device_data;
  float* host_data = nullptr;
  int64_t elements = 0;
};

// Whether this rank writes what it holds of `bucket`.
bool Writes(const FragmentFileArgs& args, const fsdp::Bucket& bucket) {
  const bool whole = args.held[bucket.id].range.elements() == bucket.elements;
  return !whole || args.world.IndexOf(bucket.axis, args.rank) == 0;
}

std::vector<Fragment> FragmentsOf(const FragmentFileArgs& args) {
  std::vector<Fragment> fragments;
  for (const fsdp::Bucket& bucket : args.units->buckets) {
    if (!Writes(args, bucket)) continue;
    const fsdp::BucketView& held = args.held[bucket.id];
    for (const fsdp::Segment& s : fsdp::SegmentsIn(bucket, held.range)) {
      const fsdp::Parameter& param = args.parameters[s.param];
      Fragment fragment;
      fragment.name =
          absl::StrCat(param.name, "@", param.global_begin + s.param_offset);
      fragment.device_data = held.at(s.bucket_offset);
      fragment.elements = s.elements;
      fragments.push_back(std::move(fragment));
    }
  }
  return fragments;
}

absl::Status CopyToHost(void* arg, device::Stream& stream) {
  for (const Fragment& fragment : *static_cast<std::vector<Fragment>*>(arg)) {
    ops::CopyArgs copy;
    copy.count = fragment.elements;
    copy.x = fragment.device_data;
    copy.out = fragment.host_data;
    ops::Copy(copy, stream);
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<fsdp::BucketView> HeldWeights(
    const fsdp::UnitAssignment& units, const fsdp::ResidentBuckets& buckets) {
  std::vector<fsdp::BucketView> held;
  for (const fsdp::Bucket& bucket : units.buckets) {
    held.push_back(buckets.weights(bucket.id));
  }
  return held;
}

// A gradient may be whole in memory and yet reduced in the own slice alone; the
// optimizer reads no more than is.
std::vector<fsdp::BucketView> HeldGradients(
    const fsdp::UnitAssignment& units, const fsdp::ResidentBuckets& buckets) {
  std::vector<fsdp::BucketView> held;
  for (const fsdp::Bucket& bucket : units.buckets) {
    const fsdp::Range range = buckets.optimized(bucket.id);
    const fsdp::BucketView& all = buckets.gradients(bucket.id);
    held.push_back({bucket.frozen ? nullptr : all.at(range.begin), range});
  }
  return held;
}

absl::Status WriteFragmentFile(const FragmentFileArgs& args,
                               absl::string_view folder) {
  std::vector<Fragment> fragments = FragmentsOf(args);
  int64_t elements = 0;
  for (const Fragment& fragment : fragments) elements += fragment.elements;
  ASSIGN_OR_RETURN(std::unique_ptr<device::Buffer> host,
                   args.device->AllocateHost(
                       elements * static_cast<int64_t>(sizeof(float))));
  float* at = reinterpret_cast<float*>(host->data());
  for (Fragment& fragment : fragments) {
    fragment.host_data = at;
    at += fragment.elements;
  }
  args.stream->Launch(&CopyToHost, &fragments);
  RETURN_IF_ERROR(args.stream->Synchronize());
  checkpoint::SafetensorsWriter writer;
  writer.SetMetadata("rank", absl::StrCat(args.rank));
  writer.SetMetadata("world", absl::StrCat(args.world.size));
  if (args.step.has_value()) {
    writer.SetMetadata("step", absl::StrCat(*args.step));
  }
  for (const Fragment& fragment : fragments) {
    RETURN_IF_ERROR(writer.Add(fragment.name, DType::kF32, {fragment.elements},
                               fragment.host_data));
  }
  if (args.rank == 0) {
    for (const HostTensor& tensor : args.alike) {
      RETURN_IF_ERROR(writer.Add(tensor.name + "@0", DType::kF32,
                                 {static_cast<int64_t>(tensor.values.size())},
                                 tensor.values.data()));
    }
  }
  return writer.Write(
      absl::StrFormat("%s/rank-%05d.safetensors", folder, args.rank));
}

}  // namespace weft::exec
