#include <cstdint>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "schedule/verifier_proofs.h"

namespace weft::schedule {
namespace {

// The memory of a value is that of what it is an instance of.
absl::Status ValueShape(const Subject& s, int id) {
  const Value& value = s.program.values[id];
  auto broken = [&](const auto&... args) {
    return BrokenValue("shape", s.program, id, args...);
  };
  int64_t bytes = 0;
  model::Space space = model::Space::kDevice;
  if (value.kind == ValueKind::kActivation) {
    if (!InRange(value.decl, s.model.values.size())) {
      return broken("is of decl ", value.decl, ", which is no declared value");
    }
    if (!InRange(value.microbatch, s.program.microbatches)) {
      return broken("microbatch ", value.microbatch, " names no microbatch");
    }
    bytes = s.model.max_bytes(value.decl, value.microbatch);
    space = s.model.values[value.decl].space;
  } else {
    if (!InRange(value.bucket, s.units.buckets.size())) {
      return broken("is of bucket ", value.bucket, ", which does not exist");
    }
    const fsdp::Bucket& bucket = s.units.buckets[value.bucket];
    if (value.kind == ValueKind::kGradient && bucket.frozen) {
      return broken("is a gradient of bucket ", value.bucket,
                    ", which is frozen");
    }
    bytes = value.kind == ValueKind::kGradient ? bucket.gradient_bytes()
                                               : bucket.weight_bytes();
  }
  if (value.bytes != bytes) {
    return broken("has ", value.bytes, " bytes of ", bytes);
  }
  if (value.space != space) return broken("lies in the wrong space");
  return absl::OkStatus();
}

// Whether `value` is an instance of declared value `decl`.
bool IsActivation(const Value& value, int decl, int microbatch) {
  return value.kind == ValueKind::kActivation && value.decl == decl &&
         value.microbatch == microbatch;
}

absl::Status ParamShape(const Subject& s, int id) {
  const Op& op = s.program.ops[id];
  const model::PhaseDecl& phase =
      *s.model.node(op.layer, op.node).Find(op.phase);
  if (op.params.size() != phase.params_read.size() ||
      op.grads.size() != phase.grads_written.size()) {
    return Broken("shape", id, "reads or writes undeclared parameters");
  }
  auto holds = [&](int value, ValueKind kind, int param, int microbatch) {
    if (!InRange(value, s.program.values.size())) return false;
    const Value& v = s.program.values[value];
    return v.kind == kind && v.bucket == s.units.bucket_of_param[param] &&
           v.microbatch == microbatch;
  };
  for (int i = 0; i < op.params.size(); ++i) {
    const int param = phase.params_read[i];
    const fsdp::Bucket& bucket =
        s.units.buckets[s.units.bucket_of_param[param]];
    const bool resident = WeightsResident(s.program.strategy, bucket);
    const bool right =
        op.params[i].param == param &&
        (resident ? op.params[i].value == -1
                  : holds(op.params[i].value, ValueKind::kGathered, param, -1));
    if (!right) {
      return Broken("shape", id, "does not read ", s.model.params[param].name,
                    " from its bucket");
    }
  }
  for (int i = 0; i < op.grads.size(); ++i) {
    const int param = phase.grads_written[i];
    if (s.model.params[param].frozen) {
      return Broken("shape", id, "writes the gradient of ",
                    s.model.params[param].name, ", which is frozen");
    }
    const bool right =
        op.grads[i].param == param &&
        (s.paths[s.units.bucket_of_param[param]] == GradientPath::kResident
             ? op.grads[i].value == -1
             : holds(op.grads[i].value, ValueKind::kGradient, param,
                     op.microbatch));
    if (!right) {
      return Broken("shape", id, "does not write the gradient of ",
                    s.model.params[param].name, " to its bucket");
    }
  }
  return absl::OkStatus();
}

absl::Status NamesNode(const Subject& s, int id) {
  const Op& op = s.program.ops[id];
  if (!InRange(op.layer, s.model.layers.size()) ||
      !InRange(op.node, s.model.layers[op.layer].nodes.size()) ||
      !InRange(op.microbatch, s.program.microbatches)) {
    return Broken("shape", id, "names no node of the model");
  }
  return absl::OkStatus();
}

absl::Status NodeShape(const Subject& s, int id) {
  const Op& op = s.program.ops[id];
  RETURN_IF_ERROR(NamesNode(s, id));
  const model::PhaseDecl* phase =
      s.model.node(op.layer, op.node).Find(op.phase);
  if (phase == nullptr) return Broken("shape", id, "has an undeclared phase");
  const StreamKind stream = StreamOf(phase->resource);
  if (op.stream != stream) {
    return Broken("shape", id, "runs on stream ", Name(op.stream),
                  ", its resource is ", Name(stream));
  }
  if (op.args.size() != phase->args.size()) {
    return Broken("shape", id, "has ", op.args.size(), " args of ",
                  phase->args.size());
  }
  for (int i = 0; i < op.args.size(); ++i) {
    const model::Arg& arg = phase->args[i];
    const int instance = arg.InstanceOf(op.microbatch);
    if (instance < 0
            ? op.args[i] == -1
            : op.args[i] >= 0 && IsActivation(s.program.values[op.args[i]],
                                              arg.value, instance)) {
      continue;
    }
    return Broken("shape", id, "arg ", i, " is not ",
                  s.model.values[arg.value].name, " of microbatch ", instance);
  }
  return ParamShape(s, id);
}

// A host wait waits for the node it names, whose host value it makes readable.
absl::Status HostWaitShape(const Subject& s, int id) {
  const Op& op = s.program.ops[id];
  RETURN_IF_ERROR(NamesNode(s, id));
  if (op.waits.size() != 1 || op.args.size() != 1) {
    return Broken("shape", id, "a host wait waits for one op");
  }
  const Op& awaited = s.program.ops[op.waits[0]];
  if (awaited.kind != OpKind::kNode || awaited.layer != op.layer ||
      awaited.node != op.node || awaited.phase != op.phase ||
      awaited.microbatch != op.microbatch) {
    return Broken("shape", id, "waits for op ", op.waits[0],
                  ", which is not the node it names");
  }
  const auto& args = s.model.node(op.layer, op.node).Find(op.phase)->args;
  for (int i = 0; i < args.size(); ++i) {
    if (args[i].access == model::Access::kWrite &&
        awaited.args[i] == op.args[0] &&
        s.program.values[op.args[0]].space == model::Space::kHost) {
      return absl::OkStatus();
    }
  }
  return Broken("shape", id, "value ", op.args[0], " is no host value of op ",
                op.waits[0]);
}

// A tap copies a value of the node phase it names, on its stream, and reads how
// many rows it has where they are counted.
absl::Status TapShape(const Subject& s, int id) {
  const Op& op = s.program.ops[id];
  RETURN_IF_ERROR(NamesNode(s, id));
  const model::PhaseDecl* phase =
      s.model.node(op.layer, op.node).Find(op.phase);
  if (phase == nullptr) return Broken("shape", id, "has an undeclared phase");
  if (op.stream != StreamOf(phase->resource)) {
    return Broken("shape", id, "tap on stream ", Name(op.stream));
  }
  if (op.args.empty()) return Broken("shape", id, "taps nothing");
  for (const model::Arg& arg : phase->args) {
    if (arg.access != model::Access::kWrite ||
        !IsActivation(s.program.values[op.args[0]], arg.value, op.microbatch)) {
      continue;
    }
    const int counts = s.model.values[arg.value].counts;
    const bool counted = counts >= 0;
    if (op.args.size() == (counted ? 2 : 1) &&
        (!counted ||
         IsActivation(s.program.values[op.args[1]], counts, op.microbatch))) {
      return absl::OkStatus();
    }
    return Broken("shape", id, "does not read the rows of ",
                  s.model.values[arg.value].name);
  }
  return Broken("shape", id, "taps value ", op.args[0],
                ", which the node does not write");
}

// The control op reads every loss of every microbatch, the counts that expert
// biases follow, which are those of the step in the last one, and those that
// the launching thread reads when it has run.
absl::Status ControlShape(const Subject& s, int id) {
  const Op& op = s.program.ops[id];
  if (op.stream != StreamKind::kReduce) {
    return Broken("shape", id, "control on stream ", Name(op.stream));
  }
  const int microbatches = s.program.microbatches;
  std::vector<std::pair<int, int>> expected;  // declared value, microbatch
  const auto expect_all = [&](int decl) {
    for (int m = 0; m < microbatches; ++m) expected.push_back({decl, m});
  };
  expect_all(s.model.loss_value);
  for (int loss : s.model.depth_loss_values) expect_all(loss);
  for (const model::RouterLossDecl& loss : s.model.router_losses) {
    expect_all(loss.value);
  }
  for (const model::ExpertBiasDecl& bias : s.model.expert_biases) {
    expected.push_back({bias.counts, microbatches - 1});
  }
  for (int counts : s.model.device_counts) expect_all(counts);
  if (op.args.size() != expected.size()) {
    return Broken(
        "shape", id, "control reads ", op.args.size(), " values of ",
        1 + s.model.depth_loss_values.size() + s.model.router_losses.size(),
        " losses and ", s.model.device_counts.size(), " counts in ",
        microbatches, " microbatches and ", s.model.expert_biases.size(),
        " expert biases");
  }
  for (int i = 0; i < op.args.size(); ++i) {
    const auto [decl, m] = expected[i];
    if (!IsActivation(s.program.values[op.args[i]], decl, m)) {
      return Broken("shape", id, "value ", op.args[i], " is not ",
                    s.model.values[decl].name, " of microbatch ", m);
    }
  }
  return absl::OkStatus();
}

absl::Status BucketShape(const Subject& s, int id) {
  const Op& op = s.program.ops[id];
  const bool collects = op.kind == OpKind::kReduce || op.kind == OpKind::kAdd;
  const StreamKind stream = collects ? StreamKind::kReduce
                            : op.kind == OpKind::kOptimizer
                                ? StreamKind::kCompute
                                : StreamKind::kGather;
  if (op.stream != stream) {
    return Broken("shape", id, Name(op.kind), " on stream ", Name(op.stream));
  }
  const bool changes = collects || op.kind == OpKind::kOptimizer;
  if (changes && s.units.buckets[op.bucket].frozen) {
    return Broken("shape", id, Name(op.kind), " of bucket ", op.bucket,
                  ", which is frozen");
  }
  if (op.kind == OpKind::kGather &&
      WeightsResident(s.program.strategy, s.units.buckets[op.bucket])) {
    return Broken("shape", id, "gathers bucket ", op.bucket,
                  ", which every rank holds");
  }
  const GradientPath path = s.paths[op.bucket];
  if (op.kind == OpKind::kAdd && path != GradientPath::kAddedEachMicrobatch) {
    return Broken("shape", id, "adds up bucket ", op.bucket,
                  ", whose gradients need no adding");
  }
  const bool resident_gradient = op.kind == OpKind::kReduce &&
                                 path != GradientPath::kReducedEachMicrobatch;
  const int args = op.kind == OpKind::kOptimizer || resident_gradient ? 0 : 1;
  if (op.args.size() != args) {
    return Broken("shape", id, Name(op.kind), " has ", op.args.size(),
                  " args of ", args);
  }
  if (args == 0) return absl::OkStatus();
  const Value& value = s.program.values[op.args[0]];
  const ValueKind kind = collects ? ValueKind::kGradient : ValueKind::kGathered;
  if (value.kind != kind || value.bucket != op.bucket) {
    return Broken("shape", id, Name(op.kind), " of bucket ", op.bucket,
                  " uses a value of something else");
  }
  return absl::OkStatus();
}

// What holds for ops of any kind.
absl::Status CommonShape(const Subject& s, int id) {
  const Op& op = s.program.ops[id];
  for (int wait : op.waits) {
    if (wait < 0 || wait >= id) {
      return Broken("shape", id, "waits for op ", wait,
                    ", which is not launched before it");
    }
    if (s.program.ops[wait].kind == OpKind::kHostWait) {
      return Broken("shape", id, "waits for op ", wait, ", a host wait");
    }
  }
  for (int value : op.args) {
    if (value == -1 && op.kind == OpKind::kNode) continue;  // see NodeShape
    if (!InRange(value, s.program.values.size())) {
      return Broken("shape", id, "uses value ", value,
                    ", which does not exist");
    }
  }
  if (op.kind != OpKind::kNode && !(op.params.empty() && op.grads.empty())) {
    return Broken("shape", id, Name(op.kind), " names parameters");
  }
  const bool has_bucket =
      op.kind != OpKind::kNode && op.kind != OpKind::kHostWait &&
      op.kind != OpKind::kTap && op.kind != OpKind::kControl;
  if (has_bucket != InRange(op.bucket, s.units.buckets.size()) ||
      (!has_bucket && op.bucket != -1)) {
    return Broken("shape", id, Name(op.kind), " names bucket ", op.bucket);
  }
  return absl::OkStatus();
}

absl::Status Shape(const Subject& s, int id) {
  RETURN_IF_ERROR(CommonShape(s, id));
  switch (s.program.ops[id].kind) {
    case OpKind::kNode:
      return NodeShape(s, id);
    case OpKind::kHostWait:
      return HostWaitShape(s, id);
    case OpKind::kTap:
      return TapShape(s, id);
    case OpKind::kControl:
      return ControlShape(s, id);
    case OpKind::kGather:
    case OpKind::kRelease:
    case OpKind::kAdd:
    case OpKind::kReduce:
    case OpKind::kOptimizer:
      return BucketShape(s, id);
  }
  return Broken("shape", id, "has no kind");
}

}  // namespace

absl::Status ProveShape(const Subject& s) {
  for (int id = 0; id < s.program.values.size(); ++id) {
    RETURN_IF_ERROR(ValueShape(s, id));
  }
  for (int id = 0; id < s.program.ops.size(); ++id) {
    RETURN_IF_ERROR(Shape(s, id));
  }
  return absl::OkStatus();
}

}  // namespace weft::schedule
