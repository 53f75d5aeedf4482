// The state of a rank that lives as long as the job: main weights, gradients
// and the optimizer's moments of every bucket. All is fp32 but gradients, which
// have the bucket's format for them, and the copy of resident weights that
// nodes read where the bucket's format for weights is another.
//
// Each is held whole on every rank of the bucket's group, or as this rank's
// slice, as Residence says. All strategies share layout and slices, so what
// differs between them is only which elements a rank has.
#ifndef WEFT_FSDP_RUNTIME_RESIDENT_BUCKETS_H_
#define WEFT_FSDP_RUNTIME_RESIDENT_BUCKETS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "fsdp/runtime/segments.h"
#include "fsdp/unit/unit.h"
#include "kernels/device/device.h"
#include "kernels/device/tensor.h"

namespace weft::fsdp {

// Which state of a bucket every rank of its group holds whole.
struct Residence {
  bool weights = false;
  bool gradients = false;
  bool optimizer = false;
};

// Elements `range` of a bucket, in device memory.
struct BucketView {
  device::Tensor data;  // from element range.begin of the bucket on
  Range range;

  // Requires: `bucket_offset` lies in the range.
  device::Tensor at(int64_t bucket_offset) const {
    return data + (bucket_offset - range.begin);
  }
  // Requires, besides: the view is fp32.
  float* f32(int64_t bucket_offset) const { return at(bucket_offset).f32(); }
};

// Owns the memory. Weights, moments and gradients start as zeros. Does not
// change after Create; the ops that use the memory order themselves.
class ResidentBuckets {
 public:
  struct Options {
    device::Device* device = nullptr;
    const UnitAssignment* units = nullptr;
    World world;
    int rank = 0;
    std::vector<Residence> residence;  // by bucket
    int moments = 2;  // the optimizer keeps of every element: 0, 1 or 2
  };
  // Requires: `residence` has an entry for every bucket.
  // RESOURCE_EXHAUSTED when the device has too little memory.
  static absl::StatusOr<std::unique_ptr<ResidentBuckets>> Create(
      Options options);

  const BucketView& weights(int bucket) const { return views_[bucket].weights; }
  const BucketView& gradients(int bucket) const {
    return views_[bucket].gradients;
  }
  // What this rank updates of the bucket; nothing of a frozen one, which has
  // neither gradients nor moments.
  Range optimized(int bucket) const { return views_[bucket].optimized; }
  // Of optimized(). Null data where the optimizer keeps fewer moments.
  const BucketView& first_moment(int bucket) const {
    return views_[bucket].first_moment;
  }
  const BucketView& second_moment(int bucket) const {
    return views_[bucket].second_moment;
  }
  // Weights as nodes read them; requires that weights are resident. The main
  // weights themselves, or a copy that RoundWeights makes.
  const BucketView& node_weights(int bucket) const {
    const Views& views = views_[bucket];
    return views.node_weights.data != nullptr ? views.node_weights
                                              : views.weights;
  }
  // This rank's slice of the bucket, whatever is resident.
  Range slice(int bucket) const { return views_[bucket].slice; }

  // Memory for the reduced slice of a bucket's gradient on its way to the
  // shard. All buckets share it: used by one stream.
  device::Tensor staging(int bucket) const {
    return {staging_->data(), gradients(bucket).data.dtype};
  }

  // What other ranks fetch slices from: weights and gradients.
  std::vector<const device::Buffer*> SharedBuffers() const;

  // Bytes of the main weights this rank holds, padding included.
  int64_t main_weight_bytes() const { return weights_->bytes(); }

 private:
  struct Views {
    Range slice;
    Range optimized;
    BucketView weights;
    BucketView node_weights;
    BucketView gradients;
    BucketView first_moment;
    BucketView second_moment;
  };

  ResidentBuckets() = default;

  std::vector<Views> views_;
  std::unique_ptr<device::Buffer> weights_;
  std::unique_ptr<device::Buffer> node_weights_;  // null: no copies
  std::unique_ptr<device::Buffer> gradients_;
  std::unique_ptr<device::Buffer> moments_;
  std::unique_ptr<device::Buffer> staging_;
};

// Brings what nodes read of a bucket's resident weights up to date with its
// main weights; nothing when they are one, or not resident. Called from work on
// `stream`.
void RoundWeights(const ResidentBuckets& buckets, int bucket,
                  device::Stream& stream);

}  // namespace weft::fsdp

#endif  // WEFT_FSDP_RUNTIME_RESIDENT_BUCKETS_H_
