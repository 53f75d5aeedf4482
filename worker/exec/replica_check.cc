#include "worker/exec/replica_check.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "kernels/ops/checksum/checksum.h"

namespace weft::exec {
namespace {

// "rank 2" or "ranks 0, 1 and 3".
std::string RankList(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks[0]);
  const std::vector<int> head(ranks.begin(), ranks.end() - 1);
  return absl::StrCat("ranks ", absl::StrJoin(head, ", "), " and ",
                      ranks.back());
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReplicaCheck>> ReplicaCheck::Create(
    Options options) {
  auto check = std::unique_ptr<ReplicaCheck>(new ReplicaCheck(options));
  device::Device& device = *options.device;
  const int64_t buckets = options.plan->units.buckets.size();
  ASSIGN_OR_RETURN(check->sums_,
                   device.AllocateHost(buckets * int64_t{sizeof(uint64_t)}));
  check->gathered_.sums = reinterpret_cast<uint64_t*>(check->sums_->data());
  check->ListItems();
  const fsdp::World& world = options.plan->world;
  for (const fsdp::Axis axis : {fsdp::Axis::kDp, fsdp::Axis::kEdp}) {
    for (int rank = 0; rank < world.size; ++rank) {
      check->leaders_[static_cast<int>(axis)].push_back(
          world.Members(axis, rank).front());
    }
  }
  ASSIGN_OR_RETURN(check->exchange_,
                   WordExchange::Create(device, *options.control,
                                        check->items_.size(), "replica_check"));
  return check;
}

void ReplicaCheck::ListItems() {
  for (const fsdp::Bucket& bucket : options_.plan->units.buckets) {
    if (bucket.group_size > 1) AddBucket(bucket);
  }
  Item scalars;
  scalars.what = "scalars of the optimizer";
  scalars.data = options_.scalars;
  scalars.bytes = sizeof(fsdp::OptimizerScalars);
  items_.push_back(scalars);
  Item tables;
  tables.what = "rotary tables";
  tables.data = options_.tables->data();
  tables.bytes = options_.tables->bytes();
  items_.push_back(tables);
  if (options_.expert_biases.empty()) return;
  Item biases;
  biases.what = "biases of experts";
  biases.data = options_.expert_biases.data();
  biases.bytes = options_.expert_biases.size() * int64_t{sizeof(float)};
  items_.push_back(biases);
}

void ReplicaCheck::AddBucket(const fsdp::Bucket& bucket) {
  if (!schedule::WeightsResident(options_.plan->strategy, bucket)) {
    Item item;
    item.what = "gathered weights";
    item.bucket = bucket.id;
    item.axis = bucket.axis;
    items_.push_back(item);
    return;
  }
  AddWhole("weights", bucket, options_.buckets->weights(bucket.id));
  if (bucket.dtype != DType::kF32) {
    AddWhole("rounded weights", bucket,
             options_.buckets->node_weights(bucket.id));
  }
  AddWhole("first moments", bucket, options_.buckets->first_moment(bucket.id));
  AddWhole("second moments", bucket,
           options_.buckets->second_moment(bucket.id));
}

void ReplicaCheck::AddWhole(const char* what, const fsdp::Bucket& bucket,
                            const fsdp::BucketView& view) {
  if (view.range.elements() != bucket.elements) return;
  Item item;
  item.what = what;
  item.bucket = bucket.id;
  item.axis = bucket.axis;
  item.data = view.data.data;
  item.bytes = bucket.elements * SizeOf(view.data.dtype);
  items_.push_back(item);
}

void ReplicaCheck::Begin() {
  std::fill_n(gathered_.sums, options_.plan->units.buckets.size(), 0);
  gathered_.is_on = true;
}

absl::Status ReplicaCheck::End(device::Stream& compute,
                               device::Stream& reduce) {
  gathered_.is_on = false;
  compute.Launch(&SumItems, this);
  RETURN_IF_ERROR(compute.Synchronize());
  RETURN_IF_ERROR(exchange_->Run(reduce));
  for (size_t i = 0; i < items_.size(); ++i) {
    for (int rank = 0; rank < options_.plan->world.size; ++rank) {
      const int leader = LeaderOf(items_[i], rank);
      if (exchange_->of(rank)[i] != exchange_->of(leader)[i]) {
        return absl::DataLossError(Describe(i, leader));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ReplicaCheck::SumItems(void* self, device::Stream& stream) {
  ReplicaCheck& check = *static_cast<ReplicaCheck*>(self);
  const absl::Span<uint64_t> own = check.exchange_->own();
  for (size_t i = 0; i < check.items_.size(); ++i) {
    const Item& item = check.items_[i];
    if (item.data == nullptr) {
      own[i] = check.gathered_.sums[item.bucket];
      continue;
    }
    ops::ChecksumArgs args;
    args.bytes = item.bytes;
    args.x = item.data;
    args.out = &own[i];
    ops::Checksum(args, stream);
  }
  return absl::OkStatus();
}

std::string ReplicaCheck::Describe(size_t i, int leader) const {
  const Item& item = items_[i];
  std::map<uint64_t, std::vector<int>> ranks;  // by checksum
  for (int rank : options_.plan->world.Members(item.axis, leader)) {
    ranks[exchange_->of(rank)[i]].push_back(rank);
  }
  // Among as many, those with the lowest rank count as the most.
  const auto fewer = [](const auto& a, const auto& b) {
    if (a.second.size() != b.second.size()) {
      return a.second.size() < b.second.size();
    }
    return a.second.front() > b.second.front();
  };
  const auto most = std::max_element(ranks.begin(), ranks.end(), fewer);
  std::vector<int> others;
  bool has_majority = true;
  for (auto it = ranks.begin(); it != ranks.end(); ++it) {
    if (it == most) continue;
    if (it->second.size() == most->second.size()) has_majority = false;
    others.insert(others.end(), it->second.begin(), it->second.end());
  }
  std::sort(others.begin(), others.end());
  const schedule::Plan& plan = *options_.plan;
  std::string text = absl::StrCat("the ", item.what);
  if (item.bucket >= 0) {
    const fsdp::Bucket& bucket = plan.units.buckets[item.bucket];
    absl::StrAppend(&text, " of ", plan.units.units[bucket.unit].name, ".",
                    fsdp::Name(bucket.axis), bucket.frozen ? ".frozen" : "");
  }
  absl::StrAppend(
      &text, " differ between ranks that hold them alike: those of ",
      RankList(others), " are not those of ", RankList(most->second));
  if (!has_majority) {
    absl::StrAppend(&text, ", and no majority says which are right");
  }
  return text;
}

}  // namespace weft::exec
