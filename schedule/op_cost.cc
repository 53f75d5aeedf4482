#include "schedule/op_cost.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "schedule/memory_plan.h"

namespace weft::schedule {
namespace {

const model::NodeDecl& NodeOf(const Plan& plan, const Op& op) {
  return plan.model.node(op.layer, op.node);
}

// By layer, what `rows_of` says of each microbatch's shape.
template <typename Fn>
RoutedRows RowsOf(const Plan& plan, const Program& program, Fn rows_of) {
  RoutedRows routed;
  routed.microbatches = program.microbatches;
  std::vector<int64_t> of_layer;
  for (int m = 0; m < program.microbatches; ++m) {
    of_layer.push_back(rows_of(plan.shape.Of(m)));
  }
  for (size_t layer = 0; layer < plan.model.layers.size(); ++layer) {
    routed.rows.insert(routed.rows.end(), of_layer.begin(), of_layer.end());
  }
  return routed;
}

double LocalBytes(const Plan& plan, int param) {
  const model::ParamDecl& decl = plan.model.params[param];
  return static_cast<double>(decl.local_elements()) * SizeOf(decl.dtype);
}

OpSize NodeSize(const Plan& plan, const Program& program, const Op& op,
                const RoutedRows& rows) {
  OpSize size;
  double routed = 0;
  for (int value : op.args) {
    if (value < 0) continue;  // of a microbatch before the first
    const Value& v = program.values[value];
    const double bytes = BytesOf(plan, v, rows);
    size.bytes += bytes;
    if (IsRouted(plan.model, v)) routed += bytes;
  }
  for (const ParamUse& use : op.params) {
    size.bytes += LocalBytes(plan, use.param);
  }
  for (const GradUse& use : op.grads) size.bytes += LocalBytes(plan, use.param);
  const model::PhaseDecl& phase = *NodeOf(plan, op).Find(op.phase);
  // Declared for the largest microbatch.
  const double sequences =
      static_cast<double>(plan.shape.sequences_of(op.microbatch)) /
      plan.shape.microbatch;
  size.flops = phase.flops;
  size.attention_flops = phase.attention_flops * sequences;
  if (op.stream == StreamKind::kReduce) {
    size.peers = plan.world.size - 1;
  } else if (op.stream == StreamKind::kEp) {
    size.peers = plan.world.ep - 1;
    size.wire_bytes =
        size.peers * (phase.bytes_to_peer > 0 ? phase.bytes_to_peer * sequences
                                              : routed / plan.world.ep);
  } else if (routed > 0) {
    size.flops *= static_cast<double>(rows.at(op.layer, op.microbatch)) /
                  plan.shape.sent_rows();
  } else {
    size.flops *= sequences;
  }
  return size;
}

OpSize BucketSize(const Plan& plan, const Op& op) {
  const fsdp::Bucket& bucket = plan.units.buckets[op.bucket];
  OpSize size;
  const bool weights =
      op.kind == OpKind::kGather || op.kind == OpKind::kRelease;
  size.bytes = weights ? bucket.weight_bytes() : bucket.gradient_bytes();
  if (op.kind == OpKind::kAdd) return size;
  if (op.kind == OpKind::kOptimizer) {
    // Beside the gradient the main weight and what the optimizer keeps, in
    // fp32.
    size.bytes += (1 + plan.moments) * SizeOf(DType::kF32) * bucket.elements;
    if (plan.strategy != fsdp::Strategy::kNoShard) {
      size.bytes /= bucket.group_size;
    }
    return size;
  }
  size.peers = bucket.group_size - 1;
  size.wire_bytes = size.bytes * size.peers / bucket.group_size;
  return size;
}

// The norm reads this rank's slices of all gradients.
OpSize ControlSize(const Plan& plan) {
  OpSize size;
  for (const fsdp::Bucket& bucket : plan.units.buckets) {
    if (bucket.frozen) continue;
    size.bytes += bucket.gradient_bytes() / bucket.group_size;
  }
  size.peers = plan.world.size - 1;
  return size;
}

}  // namespace

double Sharing::Speed(int computing) const {
  const double share = cores > 0 && computing > cores ? cores / computing : 1;
  return share / (1 + crowding * std::max(0, computing - 1));
}

RoutedRows BalancedRows(const Plan& plan, const Program& program) {
  return RowsOf(plan, program,
                [](const model::Shape& shape) { return shape.sent_rows(); });
}

RoutedRows BoundedRows(const Plan& plan, const Program& program) {
  return RowsOf(plan, program, [](const model::Shape& shape) {
    return shape.max_received_rows();
  });
}

int64_t BytesOf(const Plan& plan, const Value& value, const RoutedRows& rows) {
  if (!IsRouted(plan.model, value)) return value.bytes;
  const model::ValueDecl& decl = plan.model.values[value.decl];
  return rows.at(decl.layer, value.microbatch) * decl.columns *
         SizeOf(decl.dtype);
}

OpSize SizeOf(const Plan& plan, const Program& program, const Op& op,
              const RoutedRows& rows) {
  switch (op.kind) {
    case OpKind::kNode:
      return NodeSize(plan, program, op, rows);
    case OpKind::kGather:
    case OpKind::kAdd:
    case OpKind::kReduce:
    case OpKind::kOptimizer:
      return BucketSize(plan, op);
    case OpKind::kControl:
      return ControlSize(plan);
    default:
      return {};
  }
}

std::string ClassOf(const Plan& plan, const Op& op) {
  const bool is_all_reduce =
      op.kind == OpKind::kReduce && plan.strategy == fsdp::Strategy::kNoShard;
  if (is_all_reduce) return "all_reduce";
  if (op.kind != OpKind::kNode) return Name(op.kind);
  return absl::StrCat(model::Name(NodeOf(plan, op).kind), ".",
                      model::Name(op.phase));
}

std::optional<fsdp::Axis> AxisOf(const Plan& plan, const Op& op) {
  switch (op.kind) {
    case OpKind::kNode:
      if (op.stream == StreamKind::kEp) return fsdp::Axis::kEp;
      return std::nullopt;
    case OpKind::kGather:
    case OpKind::kReduce:
      return plan.units.buckets[op.bucket].axis;
    case OpKind::kControl:
      return fsdp::Axis::kDp;
    default:
      return std::nullopt;
  }
}

bool IsExchange(const Plan& plan, const Op& op) {
  const auto axis = AxisOf(plan, op);
  return axis.has_value() && plan.world.Members(*axis, 0).size() > 1;
}

absl::Status CheckCosts(const Plan& plan, const Program& program,
                        const CostTable& costs) {
  for (const Op& op : program.ops) {
    if (op.kind == OpKind::kHostWait) continue;
    const std::string name = ClassOf(plan, op);
    if (costs.ops.count(name) > 0) continue;
    return absl::NotFoundError(
        absl::StrCat("the cost table has no ops.", name,
                     ", which the plan runs; calibrate with a job that does"));
  }
  return absl::OkStatus();
}

CostTable ModelledCosts(const Plan& plan, const Program& program) {
  constexpr double kSecondsPerFlop = 1e-12;
  constexpr double kFlopsPerWireByte = 128;
  CostTable costs;
  for (const Op& op : program.ops) {
    if (op.kind == OpKind::kHostWait) continue;
    OpCost& cost = costs.ops[ClassOf(plan, op)];
    if (op.kind == OpKind::kRelease || op.kind == OpKind::kTap) continue;
    cost.fixed = 1e-9;
    cost.per_flop = kSecondsPerFlop;
    cost.per_attention_flop = kSecondsPerFlop;
    cost.per_wire_byte = kFlopsPerWireByte * kSecondsPerFlop;
  }
  return costs;
}

}  // namespace weft::schedule
