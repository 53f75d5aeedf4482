// When the memory of a program's values is first written and when it is dead,
// and how much may be live at a point of the step.
//
// Pure. All answers hold in every execution: they follow from the order of each
// stream and the waits alone.
#ifndef WEFT_WORKER_EXEC_LIFETIMES_H_
#define WEFT_WORKER_EXEC_LIFETIMES_H_

#include <cstdint>
#include <vector>

#include "schedule/program.h"

namespace weft::exec {

// By value id.
struct ValueLifetime {
  int first = -1;  // op that writes it first; -1: unused
  int last = -1;   // last use in launch order
  // The op that releases the value, whatever reads it later: a plan that reads
  // a released bucket reads poison. For values nothing releases, an op after
  // whose work all uses have completed while nothing that reuses the memory has
  // begun. -1: no op is such a point; the memory counts as live to the end of
  // the step.
  int dead_after = -1;
};

// First and last uses alone, which cost little; dead_after stays -1.
std::vector<ValueLifetime> UsesOf(const schedule::Program& program);
// All of it.
std::vector<ValueLifetime> LifetimesOf(const schedule::Program& program);

// For every op after which some value is dead, the bytes of the device arena
// that may be backed by memory once it is done, in whole pages; -1 for other
// ops. What is never returned always counts: pages only partly inside a value,
// and values that no op ends; also those of `others`, programs that run before
// this one in the same arena.
std::vector<int64_t> AllowedBytes(
    const schedule::Program& program,
    const std::vector<ValueLifetime>& lifetimes,
    const std::vector<const schedule::Program*>& others, int64_t page_bytes);

// Largest sum of bytes of device values live at once, in launch order. UsesOf()
// suffices.
int64_t PeakLiveBytes(const schedule::Program& program,
                      const std::vector<ValueLifetime>& lifetimes);

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_LIFETIMES_H_
