#include "schedule/replay.h"

#include <vector>

namespace weft::schedule {

Program ReplayOf(const Program& train) {
  Program replay = train;
  replay.kind = ProgramKind::kReplay;
  replay.ops.clear();
  std::vector<int> place(train.ops.size(), -1);  // in the replay
  for (int id = 0; id < train.ops.size(); ++id) {
    if (train.ops[id].kind == OpKind::kOptimizer) continue;
    place[id] = replay.ops.size();
    Op op = train.ops[id];
    op.waits.clear();
    for (int wait : train.ops[id].waits) {
      if (place[wait] >= 0) op.waits.push_back(place[wait]);
    }
    replay.ops.push_back(op);
  }
  return replay;
}

}  // namespace weft::schedule
