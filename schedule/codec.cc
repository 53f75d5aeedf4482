#include "absl/strings/str_cat.h"
#include "schedule/plan.h"

namespace weft::schedule {

plan::v1::UnitAssignment ToProto(const fsdp::UnitAssignment& units) {
  plan::v1::UnitAssignment proto;
  proto.set_hash(units.Hash());
  for (const fsdp::Unit& unit : units.units) {
    plan::v1::Unit* out = proto.add_units();
    out->set_name(unit.name);
    out->set_root(unit.root);
    for (int bucket : unit.buckets) out->add_buckets(bucket);
  }
  for (const fsdp::Bucket& bucket : units.buckets) {
    plan::v1::Bucket* out = proto.add_buckets();
    out->set_axis(static_cast<int>(bucket.axis));
    out->set_group_size(bucket.group_size);
    out->set_dtype(static_cast<int>(bucket.dtype));
    out->set_elements(bucket.elements);
    out->set_frozen(bucket.frozen);
    for (const fsdp::Placement& placement : bucket.placements) {
      out->add_params(placement.param);
      out->add_offsets(placement.offset);
    }
  }
  return proto;
}

plan::v1::Binding ToProto(const Binding& binding) {
  plan::v1::Binding proto;
  proto.set_rank(binding.rank);
  proto.set_world(binding.world.size);
  proto.set_ep(binding.world.ep);
  return proto;
}

absl::StatusOr<Binding> FromProto(const plan::v1::Binding& proto) {
  auto invalid = [](const auto&... args) {
    return absl::InvalidArgumentError(absl::StrCat("binding: ", args...));
  };
  if (proto.world() < 1) {
    return invalid("world=", proto.world(), " is not positive");
  }
  if (proto.rank() < 0 || proto.rank() >= proto.world()) {
    return invalid("rank=", proto.rank(), " is not in [0, ", proto.world(),
                   ")");
  }
  if (proto.ep() < 1 || proto.world() % proto.ep() != 0) {
    return invalid("ep=", proto.ep(), " does not divide world=", proto.world());
  }
  return Binding{proto.rank(), {proto.world(), proto.ep()}};
}

}  // namespace weft::schedule
