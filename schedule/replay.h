// Replay: the step once more, to look at what it computes.
#ifndef WEFT_SCHEDULE_REPLAY_H_
#define WEFT_SCHEDULE_REPLAY_H_

#include "schedule/program.h"

namespace weft::schedule {

// A training program without its optimizer: run in a step's place, it computes
// what that step computes and changes no weight. Memory is that of `train`.
// Pure.
Program ReplayOf(const Program& train);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_REPLAY_H_
