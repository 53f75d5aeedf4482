#include "schedule/compiler.h"

#include <algorithm>
#include <map>
#include <utility>

#include "schedule/arena.h"
#include "schedule/placement.h"

namespace weft::schedule {
namespace {

// Emits the ops of a program in launch order.
class Emitter {
 public:
  Emitter(const std::vector<NodePhase>& order, const model::ModelDecl& model,
          const fsdp::UnitAssignment& units, const CompileOptions& options)
      : order_(order),
        model_(model),
        units_(units),
        options_(options),
        stays_(PlanStays(order, model, units, options.strategy,
                         options.residency)),
        paths_(GradientPaths(model, units, options.strategy,
                             options.microbatches)),
        gathered_(units.buckets.size(), -1) {
    program_.kind = options.kind;
    program_.microbatches = options.microbatches;
    program_.strategy = options.strategy;
    program_.buffer_slots = options.residency.slots;
    FindLastWriters();
  }

  Program Run() {
    std::multimap<int, int> releases;  // position -> bucket
    int next_stay = 0;
    for (int position = 0; position < order_.size(); ++position) {
      for (; next_stay < stays_.size() && stays_[next_stay].gather == position;
           ++next_stay) {
        Gather(stays_[next_stay]);
        releases.insert({stays_[next_stay].release, stays_[next_stay].bucket});
      }
      Node(order_[position]);
      auto [begin, end] = releases.equal_range(position);
      for (auto it = begin; it != end; ++it) Release(it->second);
      Collect(position);
    }
    Control();
    if (options_.kind == ProgramKind::kTrain) {
      for (const fsdp::Bucket& bucket : units_.buckets) {
        if (!bucket.frozen) Optimize(bucket.id);
      }
    }
    return std::move(program_);
  }

 private:
  using Key = std::pair<int, int>;

  void FindLastWriters() {
    std::map<Key, int> last_writer;  // by bucket and microbatch
    for (int position = 0; position < order_.size(); ++position) {
      const NodePhase& at = order_[position];
      for (int param : Decl(at).grads_written) {
        last_writer[{units_.bucket_of_param[param], at.microbatch}] = position;
      }
    }
    completed_.resize(order_.size());
    for (const auto& [key, position] : last_writer) {
      completed_[position].push_back(key.first);
    }
  }

  const model::PhaseDecl& Decl(const NodePhase& at) const {
    return *model_.node(at.layer, at.node).Find(at.phase);
  }

  Op& NewOp(OpKind kind, StreamKind stream) {
    program_.ops.emplace_back();
    program_.ops.back().kind = kind;
    program_.ops.back().stream = stream;
    return program_.ops.back();
  }

  int NewValue(Value value) {
    program_.values.push_back(std::move(value));
    return program_.values.size() - 1;
  }

  int Activation(int decl, int microbatch) {
    auto [it, added] = activations_.insert({{decl, microbatch}, -1});
    if (added) {
      Value value;
      value.kind = ValueKind::kActivation;
      value.decl = decl;
      value.microbatch = microbatch;
      value.space = model_.values[decl].space;
      value.bytes = model_.max_bytes(decl, microbatch);
      it->second = NewValue(std::move(value));
    }
    return it->second;
  }

  int BucketValue(ValueKind kind, int bucket, int microbatch) {
    Value value;
    value.kind = kind;
    value.bucket = bucket;
    value.microbatch = microbatch;
    value.bytes = kind == ValueKind::kGradient
                      ? units_.buckets[bucket].gradient_bytes()
                      : units_.buckets[bucket].weight_bytes();
    return NewValue(std::move(value));
  }

  void Gather(const Stay& stay) {
    const int value = BucketValue(ValueKind::kGathered, stay.bucket, -1);
    if (stay.slot >= 0) {
      program_.values[value].offset = stay.slot * SlotBytes(program_, units_);
    }
    gathered_[stay.bucket] = value;
    Op& op = NewOp(OpKind::kGather, StreamKind::kGather);
    op.bucket = stay.bucket;
    op.args = {value};
  }

  void Release(int bucket) {
    Op& op = NewOp(OpKind::kRelease, StreamKind::kGather);
    op.bucket = bucket;
    op.args = {gathered_[bucket]};
    gathered_[bucket] = -1;
  }

  void Node(const NodePhase& at) {
    const model::NodeDecl& node = model_.node(at.layer, at.node);
    const model::PhaseDecl& decl = Decl(at);
    Op op;
    op.kind = OpKind::kNode;
    op.stream = StreamOf(decl.resource);
    op.layer = at.layer;
    op.node = at.node;
    op.phase = at.phase;
    op.microbatch = at.microbatch;
    for (const model::Arg& arg : decl.args) {
      const int instance = arg.InstanceOf(at.microbatch);
      op.args.push_back(instance < 0 ? -1 : Activation(arg.value, instance));
    }
    for (int param : decl.params_read) {
      op.params.push_back({param, gathered_[units_.bucket_of_param[param]]});
    }
    for (int param : decl.grads_written) op.grads.push_back(Grad(param, at));
    program_.ops.push_back(std::move(op));
    if (node.host_wait_after && at.phase == model::Phase::kForward) {
      HostWait(at);
    }
    for (const model::Arg& arg : decl.args) {
      if (arg.access == model::Access::kWrite && IsTapped(arg.value)) {
        Tap(at, StreamOf(decl.resource), arg.value);
      }
    }
  }

  bool IsTapped(int decl) const {
    return std::binary_search(options_.taps.begin(), options_.taps.end(), decl);
  }

  void Tap(const NodePhase& at, StreamKind stream, int decl) {
    Op& op = NewOp(OpKind::kTap, stream);
    op.layer = at.layer;
    op.node = at.node;
    op.phase = at.phase;
    op.microbatch = at.microbatch;
    op.args = {Activation(decl, at.microbatch)};
    const int counts = model_.values[decl].counts;
    if (counts >= 0) op.args.push_back(Activation(counts, at.microbatch));
  }

  GradUse Grad(int param, const NodePhase& at) {
    const int bucket = units_.bucket_of_param[param];
    GradUse use;
    use.param = param;
    const bool resident = paths_[bucket] == GradientPath::kResident;
    if (!resident) {
      auto [it, added] = gradients_.insert({{bucket, at.microbatch}, -1});
      if (added) {
        it->second = BucketValue(ValueKind::kGradient, bucket, at.microbatch);
      }
      use.value = it->second;
    }
    const Key writes = {param, resident ? 0 : at.microbatch};
    use.accumulate = grads_written_[writes]++ > 0;
    return use;
  }

  void HostWait(const NodePhase& at) {
    const model::PhaseDecl& decl = Decl(at);
    Op& op = NewOp(OpKind::kHostWait, StreamKind::kEp);
    op.layer = at.layer;
    op.node = at.node;
    op.phase = at.phase;
    op.microbatch = at.microbatch;
    for (const model::Arg& arg : decl.args) {
      if (arg.access == model::Access::kWrite) {
        op.args.push_back(Activation(arg.value, at.microbatch));
      }
    }
  }

  // Collects the buckets whose gradients the phase at `position` completed.
  void Collect(int position) {
    const int microbatch = order_[position].microbatch;
    const bool last = microbatch == options_.microbatches - 1;
    for (int bucket : completed_[position]) {
      switch (paths_[bucket]) {
        case GradientPath::kReducedEachMicrobatch:
          CollectValue(OpKind::kReduce, bucket, microbatch);
          break;
        case GradientPath::kAddedEachMicrobatch:
          CollectValue(OpKind::kAdd, bucket, microbatch);
          if (last) ReduceResident(bucket, microbatch);
          break;
        case GradientPath::kResident:
          if (last) ReduceResident(bucket, microbatch);
          break;
        case GradientPath::kNone:
          break;
      }
    }
  }

  void CollectValue(OpKind kind, int bucket, int microbatch) {
    Op& op = NewOp(kind, StreamKind::kReduce);
    op.bucket = bucket;
    op.microbatch = microbatch;
    op.accumulate = microbatch > 0;
    op.args = {gradients_.at({bucket, microbatch})};
  }

  void ReduceResident(int bucket, int microbatch) {
    Op& op = NewOp(OpKind::kReduce, StreamKind::kReduce);
    op.bucket = bucket;
    op.microbatch = microbatch;
  }

  void Control() {
    Op& op = NewOp(OpKind::kControl, StreamKind::kReduce);
    for (int m = 0; m < options_.microbatches; ++m) {
      op.args.push_back(activations_.at({model_.loss_value, m}));
    }
    for (int value : model_.depth_loss_values) {
      for (int m = 0; m < options_.microbatches; ++m) {
        op.args.push_back(activations_.at({value, m}));
      }
    }
    for (const model::RouterLossDecl& loss : model_.router_losses) {
      for (int m = 0; m < options_.microbatches; ++m) {
        op.args.push_back(activations_.at({loss.value, m}));
      }
    }
    for (const model::ExpertBiasDecl& bias : model_.expert_biases) {
      op.args.push_back(
          activations_.at({bias.counts, options_.microbatches - 1}));
    }
    for (int counts : model_.device_counts) {
      for (int m = 0; m < options_.microbatches; ++m) {
        op.args.push_back(activations_.at({counts, m}));
      }
    }
  }

  void Optimize(int bucket) {
    NewOp(OpKind::kOptimizer, StreamKind::kCompute).bucket = bucket;
  }

  const std::vector<NodePhase>& order_;
  const model::ModelDecl& model_;
  const fsdp::UnitAssignment& units_;
  const CompileOptions& options_;
  const std::vector<Stay> stays_;
  const std::vector<GradientPath> paths_;  // by bucket
  std::vector<int> gathered_;  // by bucket: the gathered value, or -1
  std::map<Key, int> activations_;
  std::map<Key, int> gradients_;
  std::map<Key, int> grads_written_;
  // By position: buckets whose gradients of its microbatch are complete then,
  // ascending.
  std::vector<std::vector<int>> completed_;
  Program program_;
};

}  // namespace

Program CompileOrder(const std::vector<NodePhase>& order,
                     const model::ModelDecl& model,
                     const fsdp::UnitAssignment& units,
                     const CompileOptions& options) {
  Program program = Emitter(order, model, units, options).Run();
  const std::vector<StreamClock> starts =
      PlaceWaits(program, model, units, options.reduce_bytes);
  AssignOffsets(program, units, starts,
                options.keeps_exchanged ? PoolsOfExchanges(program, model)
                                        : std::vector<int>());
  return program;
}

}  // namespace weft::schedule
