// Happens-before over a program, for the verifier.
#ifndef WEFT_SCHEDULE_HAPPENS_BEFORE_H_
#define WEFT_SCHEDULE_HAPPENS_BEFORE_H_

#include <array>
#include <vector>

#include "schedule/program.h"

namespace weft::schedule {

// Answers whether one op has completed before another starts, from the order of
// each stream, the waits, and the launching thread, which launches nothing
// while it waits.
//
// Requires: waits point backwards; the program outlives this and stays as it
// is.
class HappensBefore {
 public:
  explicit HappensBefore(const Program& program);

  // True when `a` has completed before `b` starts, in every execution.
  bool operator()(int a, int b) const;

 private:
  // Completed ops of each stream, counted from the stream's beginning.
  using Counts = std::array<int, kNumStreams>;

  const Program& program_;
  std::vector<int> ordinal_;     // of an op in its stream, from 1
  std::vector<Counts> started_;  // known complete when an op starts
};

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_HAPPENS_BEFORE_H_
