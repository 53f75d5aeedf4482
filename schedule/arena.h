// Arena: an offset for every value, so that a step allocates nothing.
#ifndef WEFT_SCHEDULE_ARENA_H_
#define WEFT_SCHEDULE_ARENA_H_

#include <vector>

#include "schedule/clock.h"
#include "schedule/program.h"

namespace weft::schedule {

// The values an op uses on its stream, each once, in order of first mention;
// none for what the launching thread does.
std::vector<int> ValuesOf(const Op& op);

// Ops that use a value first and last, in launch order.
struct Lifetime {
  int first = -1;
  int last = -1;
};
std::vector<Lifetime> Lifetimes(const Program& program);

// Bytes of device values live while each op runs.
std::vector<int64_t> LiveBytes(const Program& program);

// Fills Value::offset and the arena sizes. A value takes memory of another only
// when all uses of that one are known, from the waits already there, to have
// completed before its own first op starts: reuse never adds a wait, so it
// never costs overlap.
// Values in slots have their offsets already.
void AssignOffsets(Program& program, const fsdp::UnitAssignment& units,
                   const std::vector<StreamClock>& starts);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_ARENA_H_
