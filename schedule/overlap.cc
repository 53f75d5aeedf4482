#include "schedule/overlap.h"

#include <algorithm>
#include <limits>

namespace weft::schedule {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Disjoint intervals of time, ascending, one at a time.
struct Interval {
  int64_t begin = kNever;
  int64_t end = kNever;

  bool empty() const { return begin == kNever; }
};

// The ops of one stream: they run one after the other.
class StreamIntervals {
 public:
  StreamIntervals(const std::vector<int>& ops, absl::Span<const Span> spans)
      : ops_(ops), spans_(spans) {}

  Interval Next() {
    if (next_ == ops_.size()) return {};
    const Span& span = spans_[ops_[next_++]];
    return {span.begin_ns, span.end_ns};
  }

 private:
  const std::vector<int>& ops_;
  absl::Span<const Span> spans_;
  size_t next_ = 0;
};

// The union of two streams.
class UnionIntervals {
 public:
  UnionIntervals(StreamIntervals a, StreamIntervals b) : a_(a), b_(b) {
    next_a_ = a_.Next();
    next_b_ = b_.Next();
  }

  Interval Next() {
    Interval merged = Pop();
    if (merged.empty()) return merged;
    while (std::min(next_a_.begin, next_b_.begin) <= merged.end) {
      const Interval more = Pop();
      if (more.empty()) break;
      merged.end = std::max(merged.end, more.end);
    }
    return merged;
  }

 private:
  Interval Pop() {
    const bool from_a = next_a_.begin <= next_b_.begin;
    const Interval popped = from_a ? next_a_ : next_b_;
    if (from_a) {
      next_a_ = a_.Next();
    } else {
      next_b_ = b_.Next();
    }
    return popped;
  }

  StreamIntervals a_;
  StreamIntervals b_;
  Interval next_a_;
  Interval next_b_;
};

// Time covered by `busy`, and the part of it not covered by `cover`.
template <typename Busy>
void Measure(Busy busy, StreamIntervals cover, int64_t* busy_ns,
             int64_t* exposed_ns) {
  *busy_ns = 0;
  *exposed_ns = 0;
  Interval covered = cover.Next();
  for (Interval at = busy.Next(); !at.empty(); at = busy.Next()) {
    *busy_ns += at.end - at.begin;
    *exposed_ns += at.end - at.begin;
    while (covered.end <= at.begin && !covered.empty()) covered = cover.Next();
    while (covered.begin < at.end) {
      *exposed_ns -=
          std::min(covered.end, at.end) - std::max(covered.begin, at.begin);
      if (covered.end > at.end) break;  // it covers part of the next one too
      covered = cover.Next();
    }
  }
}

}  // namespace

StreamOps OpsByStream(const Program& program) {
  StreamOps ops;
  for (int id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    if (op.kind == OpKind::kHostWait) continue;
    ops[static_cast<int>(op.stream)].push_back(id);
  }
  return ops;
}

OverlapTimes MeasureOverlap(const StreamOps& ops,
                            absl::Span<const Span> spans) {
  auto stream = [&](StreamKind kind) {
    return StreamIntervals(ops[static_cast<int>(kind)], spans);
  };
  OverlapTimes times;
  Measure(stream(StreamKind::kEp), stream(StreamKind::kCompute), &times.ep_ns,
          &times.ep_exposed_ns);
  Measure(
      UnionIntervals(stream(StreamKind::kGather), stream(StreamKind::kReduce)),
      stream(StreamKind::kCompute), &times.fsdp_ns, &times.fsdp_exposed_ns);
  Measure(stream(StreamKind::kGather), stream(StreamKind::kCompute),
          &times.gather_ns, &times.gather_exposed_ns);
  for (int s = 0; s < kNumStreams; ++s) {
    for (int op : ops[s]) {
      times.busy_ns[s] += spans[op].end_ns - spans[op].begin_ns;
    }
  }
  return times;
}

}  // namespace weft::schedule
