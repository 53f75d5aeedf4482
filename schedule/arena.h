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
//
// `pools`, unless it is empty, has a number for every value: those of one
// number take memory of each other only. 0 is that of everything else, and of
// what is not device memory.
void AssignOffsets(Program& program, const fsdp::UnitAssignment& units,
                   const std::vector<StreamClock>& starts,
                   const std::vector<int>& pools = {});

// Pools in which what exchanges with the EP group write outlives the step: one
// for each thing that an exchange writes, or has as scratch, in every layer and
// microbatch. An exchange that is left out then leaves there what one of the
// same kind wrote before.
std::vector<int> PoolsOfExchanges(const Program& program,
                                  const model::ModelDecl& model);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_ARENA_H_
