// The fp32 state of a rank that lives as long as the job: main weights,
// gradients and the optimizer's moments of every bucket.
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

namespace weft::fsdp {

// Which state of a bucket every rank of its group holds whole.
struct Residence {
  bool weights = false;
  bool gradients = false;
  bool optimizer = false;
};

// Elements `range` of a bucket, in device memory.
struct BucketView {
  float* data = nullptr;  // element range.begin of the bucket
  Range range;

  // Requires: `bucket_offset` lies in the range.
  float* at(int64_t bucket_offset) const {
    return data + (bucket_offset - range.begin);
  }
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
  // Requires: `residence` has an entry for every bucket; every dtype is f32.
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
  // This rank's slice of the bucket, whatever is resident.
  Range slice(int bucket) const { return views_[bucket].slice; }

  // Memory for one reduced slice, of the largest bucket at most, on its way to
  // the shard; used by one stream.
  float* staging() const;

  // Bytes of the weights this rank holds, padding included.
  int64_t main_weight_bytes() const { return weights_->bytes(); }

 private:
  struct Views {
    Range slice;
    Range optimized;
    BucketView weights;
    BucketView gradients;
    BucketView first_moment;
    BucketView second_moment;
  };

  ResidentBuckets() = default;

  std::vector<Views> views_;
  std::unique_ptr<device::Buffer> weights_;
  std::unique_ptr<device::Buffer> gradients_;
  std::unique_ptr<device::Buffer> moments_;
  std::unique_ptr<device::Buffer> staging_;
};

}  // namespace weft::fsdp

#endif  // WEFT_FSDP_RUNTIME_RESIDENT_BUCKETS_H_
