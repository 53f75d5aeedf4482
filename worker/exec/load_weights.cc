#include "worker/exec/load_weights.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/ops/elementwise/elementwise.h"

namespace weft::exec {
namespace {

absl::Status RunCopy(void* arg, device::Stream& stream) {
  ops::Copy(*static_cast<const ops::CopyArgs*>(arg), stream);
  return absl::OkStatus();
}

// Elements [begin, begin + elements) of a whole parameter to `out` on the
// device, through `host`, piece by piece.
absl::Status LoadRun(const InitialWeights& from, const LoadWeightsArgs& args,
                     const model::ParamDecl& param, int64_t begin,
                     int64_t elements, float* host, const device::Tensor& out) {
  for (int64_t done = 0; done < elements; done += args.piece_elements) {
    const int64_t count = std::min(args.piece_elements, elements - done);
    RETURN_IF_ERROR(
        Annotate(from.Read(param, begin + done,
                           absl::MakeSpan(host, static_cast<size_t>(count))),
                 absl::StrCat("initial weights of ", param.name)));
    ops::CopyArgs copy;
    copy.count = count;
    copy.x = host;
    copy.out = out + done;
    args.stream->Launch(&RunCopy, &copy);
    RETURN_IF_ERROR(args.stream->Synchronize());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadWeights(const InitialWeights& from,
                         const LoadWeightsArgs& args) {
  ASSIGN_OR_RETURN(
      std::unique_ptr<device::Buffer> host,
      args.device->AllocateHost(args.piece_elements * int64_t{sizeof(float)}));
  float* piece = reinterpret_cast<float*>(host->data());
  for (const fsdp::Bucket& bucket : args.units->buckets) {
    const fsdp::BucketView& weights = args.buckets->weights(bucket.id);
    for (const fsdp::Segment& s : fsdp::SegmentsIn(bucket, weights.range)) {
      const int64_t begin =
          args.parameters[s.param].global_begin + s.param_offset;
      RETURN_IF_ERROR(LoadRun(from, args, args.model->params[s.param], begin,
                              s.elements, piece, weights.at(s.bucket_offset)));
    }
  }
  return absl::OkStatus();
}

}  // namespace weft::exec
