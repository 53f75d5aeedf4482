#include "schedule/happens_before.h"

#include <algorithm>

namespace weft::schedule {

HappensBefore::HappensBefore(const Program& program)
    : program_(program),
      ordinal_(program.ops.size()),
      started_(program.ops.size()) {
  Counts launched{};  // what the launching thread knows
  std::array<Counts, kNumStreams> last{};
  std::array<int, kNumStreams> length{};
  for (int id = 0; id < program.ops.size(); ++id) {
    const Op& op = program.ops[id];
    const int stream = static_cast<int>(op.stream);
    const bool on_host = op.kind == OpKind::kHostWait;
    Counts known = launched;
    auto learn = [&known](const Counts& other) {
      for (int s = 0; s < kNumStreams; ++s) {
        known[s] = std::max(known[s], other[s]);
      }
    };
    if (!on_host) learn(last[stream]);
    for (int wait : op.waits) {
      learn(started_[wait]);
      const int s = static_cast<int>(program.ops[wait].stream);
      known[s] = std::max(known[s], ordinal_[wait]);
    }
    started_[id] = known;
    if (on_host) {
      launched = known;
      continue;
    }
    ordinal_[id] = ++length[stream];
    last[stream] = known;
    last[stream][stream] = ordinal_[id];
  }
}

bool HappensBefore::operator()(int a, int b) const {
  if (program_.ops[a].kind == OpKind::kHostWait) return a < b;
  const int stream = static_cast<int>(program_.ops[a].stream);
  return started_[b][stream] >= ordinal_[a];
}

}  // namespace weft::schedule
