#include "worker/exec/parameter_file.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "checkpoint/format/safetensors_writer.h"
#include "kernels/ops/elementwise/elementwise.h"

namespace weft::exec {
namespace {

// One fragment in host memory.
struct Fragment {
  std::string name;
  const float* device_data = nullptr;
  float* host_data = nullptr;
  int64_t elements = 0;
};

// Whether this rank writes what it holds of `bucket`.
bool Writes(const ParameterFileArgs& args, const fsdp::Bucket& bucket) {
  const fsdp::Range held = args.buckets->weights(bucket.id).range;
  const bool whole = held.elements() == bucket.elements;
  return !whole || args.world.IndexOf(bucket.axis, args.rank) == 0;
}

std::vector<Fragment> FragmentsOf(const ParameterFileArgs& args) {
  std::vector<Fragment> fragments;
  for (const fsdp::Bucket& bucket : args.units->buckets) {
    if (!Writes(args, bucket)) continue;
    const fsdp::BucketView& weights = args.buckets->weights(bucket.id);
    for (const fsdp::Segment& s : fsdp::SegmentsIn(bucket, weights.range)) {
      const fsdp::Parameter& param = args.parameters[s.param];
      Fragment fragment;
      fragment.name =
          absl::StrCat(param.name, "@", param.global_begin + s.param_offset);
      fragment.device_data = weights.at(s.bucket_offset);
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

absl::Status WriteParameterFile(const ParameterFileArgs& args,
                                const std::string& path) {
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
  for (const Fragment& fragment : fragments) {
    RETURN_IF_ERROR(writer.Add(fragment.name, DType::kF32, {fragment.elements},
                               fragment.host_data));
  }
  return writer.Write(path);
}

}  // namespace weft::exec
