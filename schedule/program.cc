#include "schedule/program.h"

#include <algorithm>

#include "base/hash64.h"

namespace weft::schedule {

const char* Name(StreamKind stream) {
  switch (stream) {
    case StreamKind::kCompute:
      return "compute";
    case StreamKind::kEp:
      return "ep";
    case StreamKind::kGather:
      return "gather";
    case StreamKind::kReduce:
      return "reduce";
  }
  return "?";
}

const char* Name(OpKind kind) {
  switch (kind) {
    case OpKind::kNode:
      return "node";
    case OpKind::kHostWait:
      return "host_wait";
    case OpKind::kGather:
      return "gather";
    case OpKind::kRelease:
      return "release";
    case OpKind::kAdd:
      return "add";
    case OpKind::kReduce:
      return "reduce";
    case OpKind::kControl:
      return "control";
    case OpKind::kOptimizer:
      return "optimizer";
    case OpKind::kTap:
      return "tap";
  }
  return "?";
}

StreamKind StreamOf(model::Resource resource) {
  switch (resource) {
    case model::Resource::kCompute:
      return StreamKind::kCompute;
    case model::Resource::kExpertParallel:
      return StreamKind::kEp;
    case model::Resource::kDataParallel:
      return StreamKind::kReduce;
  }
  return StreamKind::kCompute;
}

bool WeightsResident(fsdp::Strategy strategy, const fsdp::Bucket& bucket) {
  return strategy == fsdp::Strategy::kNoShard || bucket.group_size == 1;
}

bool GatheredOnce(fsdp::Strategy strategy, bool root_unit) {
  return root_unit || strategy != fsdp::Strategy::kOptimGradsParams;
}

bool IsInSlot(const Program& program, const fsdp::UnitAssignment& units,
              const Value& value) {
  return program.buffer_slots > 0 && value.kind == ValueKind::kGathered &&
         !units.units[units.buckets[value.bucket].unit].root;
}

int64_t SlotBytes(const Program& program, const fsdp::UnitAssignment& units) {
  int64_t largest = 0;
  for (const fsdp::Bucket& bucket : units.buckets) {
    if (units.units[bucket.unit].root) continue;
    if (WeightsResident(program.strategy, bucket)) continue;
    largest = std::max(largest, bucket.elements * SizeOf(bucket.dtype));
  }
  return largest;
}

bool GradientsResident(fsdp::Strategy strategy) {
  return strategy == fsdp::Strategy::kNoShard ||
         strategy == fsdp::Strategy::kOptim;
}

std::vector<GradientPath> GradientPaths(const model::ModelDecl& model,
                                        const fsdp::UnitAssignment& units,
                                        fsdp::Strategy strategy,
                                        int microbatches) {
  const bool resident = GradientsResident(strategy);
  std::vector<GradientPath> paths;
  for (const fsdp::Bucket& bucket : units.buckets) {
    paths.push_back(bucket.frozen ? GradientPath::kNone
                    : resident    ? GradientPath::kResident
                                  : GradientPath::kReducedEachMicrobatch);
  }
  if (!resident || microbatches == 1) return paths;
  std::vector<bool> written(model.params.size());
  for (const model::LayerDecl& layer : model.layers) {
    for (const model::NodeDecl& node : layer.nodes) {
      for (const model::PhaseDecl& phase : node.phases) {
        for (int param : phase.grads_written) {
          if (written[param]) {
            paths[units.bucket_of_param[param]] =
                GradientPath::kAddedEachMicrobatch;
          }
          written[param] = true;
        }
      }
    }
  }
  return paths;
}

uint64_t CollectiveHash(const Program& program, const model::ModelDecl& model,
                        const fsdp::UnitAssignment& units) {
  Hash64 hash;
  hash.AddInt(program.strategy);
  for (const Op& op : program.ops) {
    const bool exchange =
        op.kind == OpKind::kNode && op.stream != StreamKind::kCompute;
    const bool collective = exchange || op.kind == OpKind::kGather ||
                            op.kind == OpKind::kReduce ||
                            op.kind == OpKind::kControl;
    if (!collective) continue;
    hash.AddInt(op.kind).AddInt(op.stream).AddInt(op.microbatch);
    hash.AddInt(op.args.size());
    for (int value : op.args) {
      hash.AddInt(value < 0 ? 0 : program.values[value].bytes);
    }
    if (exchange) {
      hash.AddInt(op.layer).AddInt(op.node).AddInt(op.phase);
      hash.AddInt(model.node(op.layer, op.node).kind);
    }
    if (op.bucket >= 0) {
      const fsdp::Bucket& bucket = units.buckets[op.bucket];
      hash.AddInt(op.bucket).AddInt(bucket.axis).AddInt(bucket.group_size);
      hash.AddInt(op.kind == OpKind::kReduce ? bucket.gradient_dtype
                                             : bucket.dtype);
      hash.AddInt(bucket.elements);
    }
  }
  return hash.Get();
}

}  // namespace weft::schedule
