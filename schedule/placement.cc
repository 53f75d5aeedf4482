#include "schedule/placement.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <set>
#include <utility>

namespace weft::schedule {
namespace {

// Who wrote and read what so far, by value and, for resident gradients, by
// bucket.
class Dependencies {
 public:
  Dependencies(const Program& program, const model::ModelDecl& model,
               const fsdp::UnitAssignment& units, int64_t reduce_bytes)
      : program_(program),
        model_(model),
        units_(units),
        reduce_bytes_(reduce_bytes),
        writers_(program.values.size()),
        readers_(program.values.size()),
        gradient_writers_(units.buckets.size()) {}

  // Ops that must complete before op `id`, in no order.
  std::vector<int> Of(int id) {
    std::vector<int> needed;
    const Op& op = program_.ops[id];
    switch (op.kind) {
      case OpKind::kNode:
        OfNode(op, needed);
        break;
      case OpKind::kHostWait:
        Append(writers_[op.args[0]], needed);
        break;
      case OpKind::kTap:
        for (int value : op.args) Append(writers_[value], needed);
        break;
      case OpKind::kGather:
        break;
      case OpKind::kRelease:
        Append(writers_[op.args[0]], needed);
        Append(readers_[op.args[0]], needed);
        break;
      case OpKind::kAdd:
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
    if (op.kind == OpKind::kAdd || op.kind == OpKind::kReduce) NoteCollect(id);
    if (op.kind == OpKind::kControl) controls_ = {id};
    if (op.kind == OpKind::kGather) writers_[op.args[0]] = {id};
    if (op.kind != OpKind::kNode) return;
    const auto& args = Phase(op).args;
    for (int i = 0; i < args.size(); ++i) {
      if (op.args[i] < 0) continue;
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

  void NoteCollect(int id) {
    const Op& op = program_.ops[id];
    if (op.kind == OpKind::kAdd) {
      gradient_writers_[op.bucket] = {id};
    } else {
      reduces_ = {id};
    }
    for (int value : op.args) {
      in_flight_.push_back({id, program_.values[value].bytes});
    }
  }

  // Makes room for a gradient of `bytes`.
  void AdmitGradient(int64_t bytes, std::vector<int>& needed) {
    in_flight_bytes_ += bytes;
    while (in_flight_bytes_ > reduce_bytes_ && !in_flight_.empty()) {
      const auto [collector, freed] = in_flight_.front();
      needed.push_back(collector);
      in_flight_bytes_ -= freed;
      in_flight_.pop_front();
    }
  }

  void OfNode(const Op& op, std::vector<int>& needed) {
    const auto& args = Phase(op).args;
    for (int i = 0; i < args.size(); ++i) {
      if (args[i].access == model::Access::kRead && op.args[i] >= 0) {
        Append(writers_[op.args[i]], needed);
      }
    }
    for (const ParamUse& use : op.params) {
      if (use.value >= 0) Append(writers_[use.value], needed);
    }
    // Several writers of one gradient run in order.
    std::set<int> admitted;
    for (const GradUse& use : op.grads) {
      const int bucket = units_.bucket_of_param[use.param];
      if (use.value >= 0 && writers_[use.value].empty() &&
          admitted.insert(use.value).second) {
        AdmitGradient(program_.values[use.value].bytes, needed);
      }
      Append(use.value >= 0 ? writers_[use.value] : gradient_writers_[bucket],
             needed);
    }
  }

  const Program& program_;
  const model::ModelDecl& model_;
  const fsdp::UnitAssignment& units_;
  const int64_t reduce_bytes_;
  std::vector<std::vector<int>> writers_;
  std::vector<std::vector<int>> readers_;
  std::vector<std::vector<int>> gradient_writers_;
  std::vector<int> reduces_;  // the last one; one stream holds them all
  std::deque<std::pair<int, int64_t>>
      in_flight_;                // (collecting op, gradient bytes)
  int64_t in_flight_bytes_ = 0;  // with gradients that no op collects yet
  std::vector<int> controls_;
};

}  // namespace

std::vector<StreamClock> PlaceWaits(Program& program,
                                    const model::ModelDecl& model,
                                    const fsdp::UnitAssignment& units,
                                    int64_t reduce_bytes) {
  Dependencies dependencies(program, model, units, reduce_bytes);
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
