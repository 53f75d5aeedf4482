#include "schedule/work_time.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace weft::schedule {
namespace {

bool Runs(const Op& op) { return op.kind != OpKind::kHostWait; }

// When ops began to work: once all ranks of their group were there.
std::vector<std::vector<Span>> WorkingSpans(const MeasuredStep& step) {
  const Plan& plan = *step.plan;
  std::vector<std::vector<Span>> spans;
  for (const MeasuredRank& rank : step.ranks) spans.push_back(rank.spans);
  for (int id = 0; id < plan.train.ops.size(); ++id) {
    const auto axis = AxisOf(plan, plan.train.ops[id]);
    if (!axis.has_value()) continue;
    for (int r = 0; r < spans.size(); ++r) {
      int64_t all_there = 0;
      for (int member : plan.world.Members(*axis, r)) {
        all_there = std::max(all_there, step.ranks[member].spans[id].begin_ns);
      }
      Span& span = spans[r][id];
      span.begin_ns = std::min(all_there, span.end_ns);
    }
  }
  return spans;
}

// The integral over time of the speed that every computing stream has.
class SharedProgress {
 public:
  SharedProgress(const Plan& plan, const std::vector<std::vector<Span>>& ranks,
                 const Sharing& sharing) {
    std::vector<std::pair<int64_t, int>> changes;
    for (const std::vector<Span>& spans : ranks) {
      for (const Span& span : spans) {
        const Op& op = plan.train.ops[span.op];
        if (!Runs(op) || IsExchange(plan, op)) continue;
        changes.push_back({span.begin_ns, 1});
        changes.push_back({span.end_ns, -1});
      }
    }
    std::sort(changes.begin(), changes.end());
    int computing = 0;
    double progress = 0;
    for (const auto& [time, change] : changes) {
      if (!times_.empty()) {
        progress += sharing.Speed(computing) *
                    static_cast<double>(time - times_.back());
      }
      times_.push_back(time);
      progress_.push_back(progress);
      computing += change;
    }
  }

  // Requires: a time at which some op that computes begins or ends.
  double At(int64_t time) const {
    const auto it = std::lower_bound(times_.begin(), times_.end(), time);
    return progress_[it - times_.begin()];
  }

 private:
  std::vector<int64_t> times_;
  std::vector<double> progress_;  // ns of work
};

}  // namespace

std::vector<std::vector<double>> WorkSeconds(const MeasuredStep& step,
                                             const Sharing& sharing) {
  const Program& program = step.plan->train;
  const std::vector<std::vector<Span>> spans = WorkingSpans(step);
  const SharedProgress progress(*step.plan, spans, sharing);
  std::vector<std::vector<double>> work;
  for (const std::vector<Span>& of_rank : spans) {
    std::vector<double>& seconds = work.emplace_back(program.ops.size());
    for (int id = 0; id < program.ops.size(); ++id) {
      const Op& op = program.ops[id];
      if (!Runs(op)) continue;
      const Span& span = of_rank[id];
      seconds[id] =
          1e-9 * (IsExchange(*step.plan, op)
                      ? static_cast<double>(span.end_ns - span.begin_ns)
                      : progress.At(span.end_ns) - progress.At(span.begin_ns));
    }
  }
  return work;
}

std::vector<double> WaitSeconds(const MeasuredStep& step) {
  const Program& program = step.plan->train;
  std::vector<double> waits;
  for (const MeasuredRank& rank : step.ranks) {
    std::array<int64_t, kNumStreams> free_since{};
    int64_t launched = 0;  // when the launching thread came by
    for (int id = 0; id < program.ops.size(); ++id) {
      const Op& op = program.ops[id];
      int64_t ready = launched;
      for (int wait : op.waits) {
        ready = std::max(ready, rank.spans[wait].end_ns);
      }
      if (!Runs(op)) {
        launched = ready;
        continue;
      }
      int64_t& free = free_since[static_cast<int>(op.stream)];
      const int64_t begin = rank.spans[id].begin_ns;
      if (free > 0 && ready > free && begin > ready) {
        waits.push_back(1e-9 * static_cast<double>(begin - ready));
      }
      free = rank.spans[id].end_ns;
    }
  }
  return waits;
}

double OutsideSeconds(const MeasuredStep& step) {
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t last = 0;
  for (const MeasuredRank& rank : step.ranks) {
    for (const Span& span : rank.spans) {
      if (!Runs(step.plan->train.ops[span.op])) continue;
      first = std::min(first, span.begin_ns);
      last = std::max(last, span.end_ns);
    }
  }
  return std::max(0.0,
                  step.step_seconds - 1e-9 * static_cast<double>(last - first));
}

}  // namespace weft::schedule
