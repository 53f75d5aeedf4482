#include "schedule/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::schedule {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// One stream of one rank.
struct Lane {
  enum class State : uint8_t {
    kIdle,
    kWaking,
    kMeeting,     // waits for other ranks to come
    kExchanging,  // with them
    kComputing,
  };
  State state = State::kIdle;
  size_t next = 0;        // index into the ops of the stream
  double free_since = 0;  // end of the op before
  double remaining = 0;   // seconds, when alone
};

// The joint replay of some ranks: time goes from one end of an op to the next.
class Replay {
 public:
  Replay(const Plan& plan, const Program& program, const CostTable& costs,
         const std::vector<RoutedRows>& rows)
      : plan_(plan),
        program_(program),
        costs_(costs),
        ops_(OpsByStream(program)),
        is_whole_world_(static_cast<int>(rows.size()) == plan.world.size) {
    for (const RoutedRows& of_rank : rows) {
      ranks_.emplace_back();
      Rank& rank = ranks_.back();
      rank.times.assign(program.ops.size(), {kNever, kNever});
      for (const Op& op : program.ops) {
        rank.work.push_back(Work(op, of_rank));
      }
    }
    for (int id = 0; id < program.ops.size(); ++id) {
      if (program.ops[id].kind == OpKind::kHostWait) host_waits_.push_back(id);
    }
  }

  Simulation Run() {
    while (true) {
      while (StartAll()) {
      }
      const double step = NextEnd();
      if (step == kNever) break;
      Advance(step);
    }
    Simulation result;
    result.step_seconds = now_ + costs_.step_seconds;
    for (Rank& rank : ranks_) result.ranks.push_back(std::move(rank.times));
    return result;
  }

 private:
  struct Rank {
    std::vector<OpTime> times;
    std::vector<double> work;  // seconds by op
    std::array<Lane, kNumStreams> lanes;
    size_t host_waits_done = 0;
  };

  double Work(const Op& op, const RoutedRows& rows) const {
    if (op.kind == OpKind::kHostWait) return 0;
    return costs_.ops.at(ClassOf(plan_, op))
        .Seconds(SizeOf(plan_, program_, op, rows));
  }

  bool IsDone(const Rank& rank, int id) const {
    return rank.times[id].end <= now_;
  }

  bool AreDone(const Rank& rank, const std::vector<int>& ids) const {
    return std::all_of(ids.begin(), ids.end(),
                       [&](int id) { return IsDone(rank, id); });
  }

  // Ops from here on are not launched yet.
  int LaunchLimit(const Rank& rank) const {
    return rank.host_waits_done < host_waits_.size()
               ? host_waits_[rank.host_waits_done]
               : static_cast<int>(program_.ops.size());
  }

  // Moves what can move without time passing; false when nothing could.
  bool StartAll() {
    bool has_moved = false;
    for (int r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      while (rank.host_waits_done < host_waits_.size()) {
        const int id = host_waits_[rank.host_waits_done];
        if (!AreDone(rank, program_.ops[id].waits)) break;
        rank.times[id] = {now_, now_};
        ++rank.host_waits_done;
        has_moved = true;
      }
      for (int s = 0; s < kNumStreams; ++s) has_moved |= Start(r, s);
    }
    return has_moved;
  }

  bool Start(int r, int s) {
    Rank& rank = ranks_[r];
    Lane& lane = rank.lanes[s];
    if (lane.state == Lane::State::kIdle) {
      if (lane.next == ops_[s].size()) return false;
      const int id = ops_[s][lane.next];
      if (id > LaunchLimit(rank) || !AreDone(rank, program_.ops[id].waits)) {
        return false;
      }
      const bool has_idled = now_ > lane.free_since;
      lane.state = Lane::State::kWaking;
      lane.remaining = has_idled ? costs_.wait_seconds : 0;
    }
    if (lane.state == Lane::State::kWaking && lane.remaining <= 0) {
      Begin(r, s);
      return true;
    }
    const bool is_running = lane.state == Lane::State::kExchanging ||
                            lane.state == Lane::State::kComputing;
    if (is_running && lane.remaining <= 0) {
      End(rank, s);
      return true;
    }
    return false;
  }

  void Begin(int r, int s) {
    Lane& lane = ranks_[r].lanes[s];
    const int id = ops_[s][lane.next];
    ranks_[r].times[id].begin = now_;
    lane.state = Lane::State::kMeeting;
    const auto axis = AxisOf(plan_, program_.ops[id]);
    if (!axis.has_value() || !is_whole_world_) {
      BeginWork(r, s);
      return;
    }
    const std::vector<int> members = plan_.world.Members(*axis, r);
    int& arrived = arrived_[{id, members.front()}];
    if (++arrived < static_cast<int>(members.size())) return;
    arrived_.erase({id, members.front()});
    for (int member : members) BeginWork(member, s);
  }

  void BeginWork(int r, int s) {
    Lane& lane = ranks_[r].lanes[s];
    const int id = ops_[s][lane.next];
    lane.state = IsExchange(plan_, program_.ops[id]) ? Lane::State::kExchanging
                                                     : Lane::State::kComputing;
    lane.remaining = ranks_[r].work[id];
  }

  void End(Rank& rank, int s) {
    Lane& lane = rank.lanes[s];
    rank.times[ops_[s][lane.next]].end = now_;
    lane.state = Lane::State::kIdle;
    lane.free_since = now_;
    ++lane.next;
  }

  // Of the streams that compute.
  double Speed() const {
    int computing = 0;
    for (const Rank& rank : ranks_) {
      for (const Lane& lane : rank.lanes) {
        computing += lane.state == Lane::State::kComputing;
      }
    }
    computing *= plan_.world.size / static_cast<int>(ranks_.size());
    return costs_.sharing.Speed(computing);
  }

  // Whether time brings a stream on, and at what speed.
  static bool IsMoving(const Lane& lane) {
    return lane.state != Lane::State::kIdle &&
           lane.state != Lane::State::kMeeting;
  }
  static double SpeedOf(const Lane& lane, double computing) {
    return lane.state == Lane::State::kComputing ? computing : 1;
  }

  // Time until the next stream wakes or ends its op.
  double NextEnd() const {
    const double speed = Speed();
    double next = kNever;
    for (const Rank& rank : ranks_) {
      for (const Lane& lane : rank.lanes) {
        if (!IsMoving(lane)) continue;
        next = std::min(next, lane.remaining / SpeedOf(lane, speed));
      }
    }
    return next;
  }

  void Advance(double seconds) {
    // What ends now has nothing left, whatever rounding says.
    constexpr double kRounding = 1 + 1e-12;
    const double speed = Speed();
    now_ += seconds;
    for (Rank& rank : ranks_) {
      for (Lane& lane : rank.lanes) {
        if (!IsMoving(lane)) continue;
        const double passed = seconds * SpeedOf(lane, speed);
        lane.remaining =
            passed * kRounding >= lane.remaining ? 0 : lane.remaining - passed;
      }
    }
  }

  const Plan& plan_;
  const Program& program_;
  const CostTable& costs_;
  const StreamOps ops_;
  const bool is_whole_world_;
  std::vector<int> host_waits_;
  std::vector<Rank> ranks_;
  // By op and first rank of its group: ranks that wait for the others.
  std::map<std::pair<int, int>, int> arrived_;
  double now_ = 0;
};

absl::Status CheckRows(const Plan& plan, const Program& program,
                       const std::vector<RoutedRows>& rows) {
  const size_t world = plan.world.size;
  if (rows.size() != 1 && rows.size() != world) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rows of ", rows.size(), " ranks; must be of 1 or of all ", world));
  }
  for (const RoutedRows& of_rank : rows) {
    if (of_rank.microbatches == program.microbatches &&
        of_rank.rows.size() ==
            plan.model.layers.size() * program.microbatches) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("rows of ", of_rank.microbatches, " microbatches and ",
                     of_rank.rows.size(), " entries do not fit a plan of ",
                     program.microbatches, " microbatches and ",
                     plan.model.layers.size(), " layers"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Simulation> Simulate(const Plan& plan, const Program& program,
                                    const CostTable& costs,
                                    const std::vector<RoutedRows>& rows) {
  RETURN_IF_ERROR(CheckRows(plan, program, rows));
  RETURN_IF_ERROR(CheckCosts(plan, program, costs));
  return Replay(plan, program, costs, rows).Run();
}

std::vector<Span> ToSpans(absl::Span<const OpTime> times) {
  std::vector<Span> spans;
  for (int id = 0; id < times.size(); ++id) {
    spans.push_back({id, std::llround(times[id].begin * 1e9),
                     std::llround(times[id].end * 1e9)});
  }
  return spans;
}

std::array<double, kNumStreams> BusySeconds(const Program& program,
                                            absl::Span<const OpTime> times) {
  std::array<double, kNumStreams> busy{};
  for (int id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    if (op.kind == OpKind::kHostWait) continue;
    busy[static_cast<int>(op.stream)] += times[id].end - times[id].begin;
  }
  return busy;
}

}  // namespace weft::schedule
