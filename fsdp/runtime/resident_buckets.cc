#include "fsdp/runtime/resident_buckets.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "kernels/ops/elementwise/elementwise.h"

namespace weft::fsdp {
namespace {

using device::MemoryCategory;

Range SliceOf(const Bucket& bucket, const World& world, int rank) {
  const auto [begin, end] = bucket.Slice(world.IndexOf(bucket.axis, rank));
  return {begin, end};
}

// Hands out consecutive views; the memory comes once all are known. Slices and
// buckets are multiples of 64 bytes, so every view is aligned.
class Layout {
 public:
  void Add(BucketView* view, const Range& range, DType dtype) {
    view->range = range;
    view->data.dtype = dtype;
    entries_.push_back({view, bytes_});
    bytes_ += range.elements() * SizeOf(dtype);
  }

  bool empty() const { return entries_.empty(); }

  absl::StatusOr<std::unique_ptr<device::Buffer>> Allocate(
      device::Device& device, MemoryCategory category) const {
    ASSIGN_OR_RETURN(std::unique_ptr<device::Buffer> buffer,
                     device.Allocate(bytes_, category));
    for (const auto& [view, offset] : entries_) {
      view->data.data = buffer->data() + offset;
    }
    return buffer;
  }

 private:
  std::vector<std::pair<BucketView*, int64_t>> entries_;
  int64_t bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ResidentBuckets>> ResidentBuckets::Create(
    Options options) {
  auto state = std::unique_ptr<ResidentBuckets>(new ResidentBuckets);
  const std::vector<Bucket>& buckets = options.units->buckets;
  state->views_.resize(buckets.size());
  Layout weights;
  Layout node_weights;
  Layout gradients;
  Layout moments;
  int64_t staging_bytes = 0;
  for (const Bucket& bucket : buckets) {
    Views& views = state->views_[bucket.id];
    const Residence& residence = options.residence[bucket.id];
    const Range whole = {0, bucket.elements};
    const Range slice = SliceOf(bucket, options.world, options.rank);
    views.slice = slice;
    weights.Add(&views.weights, residence.weights ? whole : slice, DType::kF32);
    if (residence.weights && bucket.dtype != DType::kF32) {
      node_weights.Add(&views.node_weights, whole, bucket.dtype);
    }
    if (bucket.frozen) continue;
    staging_bytes =
        std::max(staging_bytes, bucket.gradient_bytes() / bucket.group_size);
    gradients.Add(&views.gradients, residence.gradients ? whole : slice,
                  bucket.gradient_dtype);
    views.optimized = residence.optimizer ? whole : slice;
    if (options.moments > 0) {
      moments.Add(&views.first_moment, views.optimized, DType::kF32);
    }
    if (options.moments > 1) {
      moments.Add(&views.second_moment, views.optimized, DType::kF32);
    }
  }
  device::Device& device = *options.device;
  ASSIGN_OR_RETURN(state->weights_,
                   weights.Allocate(device, MemoryCategory::kParameters));
  if (!node_weights.empty()) {
    ASSIGN_OR_RETURN(
        state->node_weights_,
        node_weights.Allocate(device, MemoryCategory::kParameters));
  }
  ASSIGN_OR_RETURN(state->gradients_,
                   gradients.Allocate(device, MemoryCategory::kGradients));
  ASSIGN_OR_RETURN(state->moments_,
                   moments.Allocate(device, MemoryCategory::kOptimizer));
  ASSIGN_OR_RETURN(state->staging_,
                   device.Allocate(staging_bytes, MemoryCategory::kStaging));
  return state;
}

std::vector<const device::Buffer*> ResidentBuckets::SharedBuffers() const {
  std::vector<const device::Buffer*> shared = {weights_.get(),
                                               gradients_.get()};
  if (node_weights_ != nullptr) shared.push_back(node_weights_.get());
  return shared;
}

void RoundWeights(const ResidentBuckets& buckets, int bucket,
                  device::Stream& stream) {
  const BucketView& main = buckets.weights(bucket);
  const BucketView& node = buckets.node_weights(bucket);
  if (node.data.data == main.data.data) return;
  ops::CopyArgs copy;
  copy.count = main.range.elements();
  copy.x = main.data;
  copy.out = node.data;
  ops::Copy(copy, stream);
}

}  // namespace weft::fsdp
