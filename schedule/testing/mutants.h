// Mutants of a program: one thing changed in each.
#ifndef WEFT_SCHEDULE_TESTING_MUTANTS_H_
#define WEFT_SCHEDULE_TESTING_MUTANTS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "fsdp/unit/unit.h"
#include "model/declaration.h"
#include "schedule/program.h"

namespace weft::schedule {

enum class MutantClass : uint8_t {
  kDropOp,              // an op is gone; what it ordered stays ordered
  kDropOpAndWaits,      // ... and nothing waits in its place
  kMoveOp,              // elsewhere in launch order
  kMoveToStream,        // on another stream
  kRemoveWait,          // one wait less
  kWeakenWait,          // ... waits for the op ahead, on the awaited stream
  kRetargetValue,       // reads or writes another value
  kRetargetBucket,      // another bucket
  kRetargetMicrobatch,  // another microbatch
  kRetargetNode,        // another layer, node or phase
  kRetargetOffset,      // a value lies elsewhere in its arena
  kFlipAccumulate,      // overwrites what it added to, or the reverse
};
inline constexpr int kNumMutantClasses = 12;
const char* Name(MutantClass kind);

struct Mutant {
  MutantClass kind = MutantClass::kDropOp;
  std::string what;  // what was changed, by ids of the unmutated program
  Program program;
};

// Calls `fn` with every mutant of the classes that `chosen` says true to (it is
// asked once for each); of kRetargetValue and
// kRetargetOffset, whose mutants are too many, with those most likely to look
// right: values of the same kind or size, and offsets of neighbours.
void ForEachMutant(const Program& program, const model::ModelDecl& model,
                   const fsdp::UnitAssignment& units,
                   const std::function<bool()>& chosen,
                   const std::function<void(const Mutant& mutant)>& fn);

// What a rank does, whatever order ops of different streams are launched in:
// two programs with one signature run alike.
std::string ExecutionSignature(const Program& program);

// Takes op `id` out. What waited for it waits for what it waited for, if
// `inherit`.
void DropOp(Program& program, int id, bool inherit);

// Moves op `from` so that its id is `to`.
void MoveOp(Program& program, int from, int to);

// Gives each value memory of its own.
void SpreadOut(Program& program);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_TESTING_MUTANTS_H_
