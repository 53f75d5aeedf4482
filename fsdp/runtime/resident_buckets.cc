#include "fsdp/runtime/resident_buckets.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace weft::fsdp {
namespace {

using device::MemoryCategory;

constexpr int64_t kElementBytes = sizeof(float);

Range SliceOf(const Bucket& bucket, const World& world, int rank) {
  const auto [begin, end] = bucket.Slice(world.IndexOf(bucket.axis, rank));
  return {begin, end};
}

// Hands out consecutive views; the memory comes once all are known. Slices and
// buckets are multiples of 64 bytes, so every view is aligned.
class Layout {
 public:
  void Add(BucketView* view, const Range& range) {
    view->range = range;
    entries_.push_back({view, elements_});
    elements_ += range.elements();
  }

  absl::StatusOr<std::unique_ptr<device::Buffer>> Allocate(
      device::Device& device, MemoryCategory category) const {
    ASSIGN_OR_RETURN(std::unique_ptr<device::Buffer> buffer,
                     device.Allocate(elements_ * kElementBytes, category));
    for (const auto& [view, offset] : entries_) {
      view->data = reinterpret_cast<float*>(buffer->data()) + offset;
    }
    return buffer;
  }

 private:
  std::vector<std::pair<BucketView*, int64_t>> entries_;
  int64_t elements_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ResidentBuckets>> ResidentBuckets::Create(
    Options options) {
  auto state = std::unique_ptr<ResidentBuckets>(new ResidentBuckets);
  const std::vector<Bucket>& buckets = options.units->buckets;
  state->views_.resize(buckets.size());
  Layout weights;
  Layout gradients;
  Layout moments;
  int64_t largest_slice = 0;
  for (const Bucket& bucket : buckets) {
    Views& views = state->views_[bucket.id];
    const Residence& residence = options.residence[bucket.id];
    const Range whole = {0, bucket.elements};
    const Range slice = SliceOf(bucket, options.world, options.rank);
    views.slice = slice;
    weights.Add(&views.weights, residence.weights ? whole : slice);
    if (bucket.frozen) continue;
    largest_slice = std::max(largest_slice, slice.elements());
    gradients.Add(&views.gradients, residence.gradients ? whole : slice);
    views.optimized = residence.optimizer ? whole : slice;
    if (options.moments > 0) moments.Add(&views.first_moment, views.optimized);
    if (options.moments > 1) moments.Add(&views.second_moment, views.optimized);
  }
  device::Device& device = *options.device;
  ASSIGN_OR_RETURN(state->weights_,
                   weights.Allocate(device, MemoryCategory::kParameters));
  ASSIGN_OR_RETURN(state->gradients_,
                   gradients.Allocate(device, MemoryCategory::kGradients));
  ASSIGN_OR_RETURN(state->moments_,
                   moments.Allocate(device, MemoryCategory::kOptimizer));
  ASSIGN_OR_RETURN(
      state->staging_,
      device.Allocate(largest_slice * kElementBytes, MemoryCategory::kStaging));
  return state;
}

float* ResidentBuckets::staging() const {
  return reinterpret_cast<float*>(staging_->data());
}

}  // namespace weft::fsdp
