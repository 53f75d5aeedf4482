#include "schedule/placement.h"

#include <algorithm>
#include <functional>

namespace weft::schedule {
namespace {

// Who wrote and read what so far, by value and, for resident gradients, by
// bucket.
class Dependencies {
 public:
  Dependencies(const Program& program, const model::ModelDecl& model,
               const fsdp::UnitAssignment& units)
      : program_(program),
        model_(model),
        units_(units),
        writers_(program.values.size()),
        readers_(program.values.size()),
        gradient_writers_(units.buckets.size()) {}

  // Ops that must complete before op `id`, in no order.
  std::vector<int> Of(int id) const {
    std::vector<int> needed;
    const Op& op = program_.ops[id];
    switch (op.kind) {
      case OpKind::kNode:
        OfNode(op, needed);
        break;
      case OpKind::kHostWait:
        Append(writers_[op.args[0]], needed);
        break;
      case OpKind::kGather:
        break;
      case OpKind::kRelease:
        Append(writers_[op.args[0]], needed);
        Append(readers_[op.args[0]], needed);
        break;
      case OpKind::kReduce:
        Append(op.args.empty() ? gradient_writers_[op.bucket]
                               : writers_[op.args[0]],
               needed);
        break;
      case OpKind::kControl:
        for (int value : op.args) Append(writers_[value], needed);
        Append(reduces_, needed);
        break;
      case OpKind::kOptimizer:
        Append(controls_, needed);
        break;
    }
    return needed;
  }

  void Note(int id) {
    const Op& op = program_.ops[id];
    if (op.kind == OpKind::kReduce) reduces_ = {id};
    if (op.kind == OpKind::kControl) controls_ = {id};
    if (op.kind == OpKind::kGather) writers_[op.args[0]] = {id};
    if (op.kind != OpKind::kNode) return;
    const auto& args = Phase(op).args;
    for (int i = 0; i < args.size(); ++i) {
      const bool read = args[i].access == model::Access::kRead;
      (read ? readers_ : writers_)[op.args[i]].push_back(id);
    }
    for (const ParamUse& use : op.params) {
      if (use.value >= 0) readers_[use.value].push_back(id);
    }
    for (const GradUse& use : op.grads) {
      const int bucket = units_.bucket_of_param[use.param];
      (use.value >= 0 ? writers_[use.value] : gradient_writers_[bucket])
          .push_back(id);
    }
  }

 private:
  static void Append(const std::vector<int>& ops, std::vector<int>& to) {
    to.insert(to.end(), ops.begin(), ops.end());
  }

  const model::PhaseDecl& Phase(const Op& op) const {
    return *model_.node(op.layer, op.node).Find(op.phase);
  }

  void OfNode(const Op& op, std::vector<int>& needed) const {
    const auto& args = Phase(op).args;
    for (int i = 0; i < args.size(); ++i) {
      if (args[i].access == model::Access::kRead) {
        Append(writers_[op.args[i]], needed);
      }
    }
    for (const ParamUse& use : op.params) {
      if (use.value >= 0) Append(writers_[use.value], needed);
    }
    // Several writers of one gradient run in order.
    for (const GradUse& use : op.grads) {
      const int bucket = units_.bucket_of_param[use.param];
      Append(use.value >= 0 ? writers_[use.value] : gradient_writers_[bucket],
             needed);
    }
  }

  const Program& program_;
  const model::ModelDecl& model_;
  const fsdp::UnitAssignment& units_;
  std::vector<std::vector<int>> writers_;
  std::vector<std::vector<int>> readers_;
  std::vector<std::vector<int>> gradient_writers_;
  std::vector<int> reduces_;  // the last one; one stream holds them all
  std::vector<int> controls_;
};

}  // namespace

std::vector<StreamClock> PlaceWaits(Program& program,
                                    const model::ModelDecl& model,
                                    const fsdp::UnitAssignment& units) {
  Dependencies dependencies(program, model, units);
  std::vector<StreamClock> starts(program.ops.size());
  std::array<StreamClock, kNumStreams> streams;
  for (int id = 0; id < program.ops.size(); ++id) {
    Op& op = program.ops[id];
    StreamClock& clock = streams[static_cast<int>(op.stream)];
    std::vector<int> needed = dependencies.Of(id);
    std::sort(needed.begin(), needed.end(), std::greater<>());
    op.waits.clear();
    // The launching thread, which does host waits, follows no stream.
    const bool on_host = op.kind == OpKind::kHostWait;
    StreamClock start = on_host ? StreamClock() : clock;
    for (int dependency : needed) {
      const StreamKind stream = program.ops[dependency].stream;
      if (start.Covers(stream, dependency)) continue;
      start.Add(starts[dependency]);
      start.Add(stream, dependency);
      op.waits.push_back(dependency);
    }
    std::reverse(op.waits.begin(), op.waits.end());
    starts[id] = start;
    if (!on_host) {
      clock = start;
      clock.Add(op.stream, id);
    }
    dependencies.Note(id);
  }
  return starts;
}

}  // namespace weft::schedule
