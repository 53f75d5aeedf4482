#include "fsdp/unit/unit.h"

#include <algorithm>

#include "base/hash64.h"

namespace weft::fsdp {
namespace {

constexpr int64_t kAlignmentBytes = 64;

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// What the parameters of a bucket have in common.
struct Kind {
  bool expert = false;
  bool frozen = false;
  DType dtype = DType::kF32;

  bool Fits(const model::ParamDecl& param) const {
    return param.expert == expert && param.frozen == frozen &&
           param.dtype == dtype;
  }
};

// Appends the parameters of `in_unit` that are of a kind to a new bucket of
// `unit`; adds nothing when there are none.
void AddBucket(const model::ModelDecl& model, const World& world, Unit& unit,
               const std::vector<bool>& in_unit, const Kind& kind,
               UnitAssignment& out) {
  Bucket bucket;
  bucket.id = out.buckets.size();
  bucket.unit = unit.id;
  bucket.axis = kind.expert ? Axis::kEdp : Axis::kDp;
  bucket.group_size = world.GroupSize(bucket.axis);
  bucket.frozen = kind.frozen;
  bucket.dtype = kind.dtype;
  bucket.gradient_dtype = model.params.front().gradient_dtype;
  const int64_t alignment =
      kAlignmentBytes /
      std::min(SizeOf(bucket.dtype), SizeOf(bucket.gradient_dtype));
  int64_t end = 0;
  for (int p = 0; p < model.params.size(); ++p) {
    const model::ParamDecl& param = model.params[p];
    if (!in_unit[param.layer] || !kind.Fits(param)) continue;
    const int64_t offset = RoundUp(end, alignment);
    bucket.placements.push_back({p, offset, param.local_elements()});
    out.bucket_of_param[p] = bucket.id;
    out.offset_of_param[p] = offset;
    end = offset + param.local_elements();
  }
  if (bucket.placements.empty()) return;
  bucket.elements = RoundUp(end, alignment * bucket.group_size);
  unit.buckets.push_back(bucket.id);
  out.buckets.push_back(std::move(bucket));
}

void AddUnit(const model::ModelDecl& model, const World& world,
             const std::string& name, bool root,
             const std::vector<bool>& in_unit, UnitAssignment& out) {
  Unit unit;
  unit.id = out.units.size();
  unit.name = name;
  unit.root = root;
  for (bool expert : {false, true}) {
    for (bool frozen : {false, true}) {
      for (DType dtype : {DType::kBf16, DType::kF32}) {
        AddBucket(model, world, unit, in_unit, {expert, frozen, dtype}, out);
      }
    }
  }
  out.units.push_back(std::move(unit));
}

}  // namespace

const char* Name(Strategy strategy) {
  switch (strategy) {
    case Strategy::kNoShard:
      return "no_shard";
    case Strategy::kOptim:
      return "optim";
    case Strategy::kOptimGrads:
      return "optim_grads";
    case Strategy::kOptimGradsParams:
      return "optim_grads_params";
  }
  return "?";
}

const char* Name(Axis axis) {
  switch (axis) {
    case Axis::kDp:
      return "dp";
    case Axis::kEdp:
      return "edp";
    case Axis::kEp:
      return "ep";
  }
  return "?";
}

std::pair<int64_t, int64_t> Bucket::Slice(int index) const {
  return {index * slice_elements(), (index + 1) * slice_elements()};
}

uint64_t UnitAssignment::Hash() const {
  Hash64 hash;
  hash.AddInt(units.size());
  for (const Unit& unit : units) {
    hash.AddString(unit.name).AddInt(unit.root).AddInt(unit.buckets.size());
    for (int bucket : unit.buckets) hash.AddInt(bucket);
  }
  hash.AddInt(buckets.size());
  for (const Bucket& bucket : buckets) {
    hash.AddInt(bucket.unit).AddInt(bucket.axis).AddInt(bucket.group_size);
    hash.AddInt(bucket.dtype).AddInt(bucket.gradient_dtype);
    hash.AddInt(bucket.frozen).AddInt(bucket.elements);
    hash.AddInt(bucket.placements.size());
    for (const Placement& placement : bucket.placements) {
      hash.AddInt(placement.param).AddInt(placement.offset);
      hash.AddInt(placement.elements);
    }
  }
  return hash.Get();
}

int World::GroupSize(Axis axis) const {
  switch (axis) {
    case Axis::kDp:
      return size;
    case Axis::kEdp:
      return edp();
    case Axis::kEp:
      return ep;
  }
  return 1;
}

int World::IndexOf(Axis axis, int rank) const {
  switch (axis) {
    case Axis::kDp:
      return rank;
    case Axis::kEdp:
      return rank / ep;
    case Axis::kEp:
      return rank % ep;
  }
  return 0;
}

std::vector<int> World::Members(Axis axis, int rank) const {
  const int first = axis == Axis::kDp    ? 0
                    : axis == Axis::kEdp ? rank % ep
                                         : rank / ep * ep;
  const int stride = axis == Axis::kEdp ? ep : 1;
  std::vector<int> members(GroupSize(axis));
  for (int i = 0; i < members.size(); ++i) members[i] = first + i * stride;
  return members;
}

UnitAssignment AssignUnits(const model::ModelDecl& model, const World& world) {
  UnitAssignment out;
  out.bucket_of_param.assign(model.params.size(), -1);
  out.offset_of_param.assign(model.params.size(), -1);
  std::vector<bool> root(model.layers.size());
  for (int layer = 0; layer < model.layers.size(); ++layer) {
    root[layer] = !model.layers[layer].unit;
  }
  AddUnit(model, world, "root", /*root=*/true, root, out);
  for (int layer = 0; layer < model.layers.size(); ++layer) {
    if (root[layer]) continue;
    std::vector<bool> only(model.layers.size());
    only[layer] = true;
    AddUnit(model, world, model.layers[layer].name, /*root=*/false, only, out);
  }
  return out;
}

}  // namespace weft::fsdp
