// Vector clocks over the streams of a program: which ops are known to have
// completed when an op starts.
#ifndef WEFT_SCHEDULE_CLOCK_H_
#define WEFT_SCHEDULE_CLOCK_H_

#include <algorithm>
#include <array>

#include "schedule/program.h"

namespace weft::schedule {

// For every stream, the largest op id known to have completed (-1: none). As a
// stream completes its ops in order, all smaller ids of that stream have too.
class StreamClock {
 public:
  StreamClock() { completed_.fill(-1); }

  bool Covers(StreamKind stream, int op) const {
    return op <= completed_[static_cast<int>(stream)];
  }
  bool Covers(const StreamClock& other) const {
    for (int s = 0; s < kNumStreams; ++s) {
      if (other.completed_[s] > completed_[s]) return false;
    }
    return true;
  }
  void Add(StreamKind stream, int op) {
    int& completed = completed_[static_cast<int>(stream)];
    completed = std::max(completed, op);
  }
  void Add(const StreamClock& other) {
    for (int s = 0; s < kNumStreams; ++s) {
      completed_[s] = std::max(completed_[s], other.completed_[s]);
    }
  }
  // Keeps what both know.
  void Meet(const StreamClock& other) {
    for (int s = 0; s < kNumStreams; ++s) {
      completed_[s] = std::min(completed_[s], other.completed_[s]);
    }
  }

 private:
  std::array<int, kNumStreams> completed_;
};

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_CLOCK_H_
