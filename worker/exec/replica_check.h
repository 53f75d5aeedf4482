// ReplicaCheck: what ranks hold alike is equal to the bit.
#ifndef WEFT_WORKER_EXEC_REPLICA_CHECK_H_
#define WEFT_WORKER_EXEC_REPLICA_CHECK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "fsdp/runtime/optimizer.h"
#include "fsdp/runtime/resident_buckets.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"
#include "schedule/plan.h"
#include "worker/exec/word_exchange.h"

namespace weft::exec {

// Compares checksums of a step between the ranks of each group:
//
//   no_shard          weights and moments of every bucket, after the step
//   other strategies  the gathered weights of every bucket, as they are when
//                     they are released, over all their stays in the step
//   all               the optimizer's scalars, the rotary tables and the biases
//                     of experts
//
// A bucket whose group is one rank has no replica; nor has a shard.
// Allocates when it is made only. Thread-compatible.
class ReplicaCheck {
 public:
  // Borrowed; all of it outlives the check.
  struct Options {
    const schedule::Plan* plan = nullptr;
    device::Device* device = nullptr;
    comm::Communicator* control = nullptr;
    const fsdp::ResidentBuckets* buckets = nullptr;
    const device::Buffer* tables = nullptr;
    // Host memory that the device can read.
    const fsdp::OptimizerScalars* scalars = nullptr;
    absl::Span<const float> expert_biases;
  };
  // Errors are those of device and communicator.
  static absl::StatusOr<std::unique_ptr<ReplicaCheck>> Create(Options options);

  // Releases add checksums of what was gathered to `sums`, by bucket, while
  // `is_on`.
  struct Gathered {
    bool is_on = false;
    uint64_t* sums = nullptr;
  };
  const Gathered& gathered() const { return gathered_; }

  // Before a step that is to be checked.
  void Begin();
  // After it, all streams being idle; `reduce` owns the control communicator.
  // DATA_LOSS, the same on all ranks, naming bucket and ranks in the minority;
  // else the collective's error.
  absl::Status End(device::Stream& compute, device::Stream& reduce);

 private:
  // Something that the ranks of a group hold alike.
  struct Item {
    const char* what = "";
    int bucket = -1;  // -1: of no bucket
    fsdp::Axis axis = fsdp::Axis::kDp;
    const void* data = nullptr;  // null: its checksum comes from the releases
    int64_t bytes = 0;
  };

  explicit ReplicaCheck(Options options) : options_(options) {}

  void ListItems();
  void AddBucket(const fsdp::Bucket& bucket);
  void AddWhole(const char* what, const fsdp::Bucket& bucket,
                const fsdp::BucketView& view);
  static absl::Status SumItems(void* self, device::Stream& stream);
  int LeaderOf(const Item& item, int rank) const {
    return leaders_[static_cast<int>(item.axis)][rank];
  }
  std::string Describe(size_t item, int leader) const;

  const Options options_;
  std::vector<Item> items_;
  std::vector<int> leaders_[2];           // by axis, kDp and kEdp, then by rank
  std::unique_ptr<device::Buffer> sums_;  // u64, by bucket
  Gathered gathered_;
  std::unique_ptr<WordExchange> exchange_;  // a word an item
};

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_REPLICA_CHECK_H_
