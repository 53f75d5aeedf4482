// Sleeping on a number in memory that processes share, until it changes.
#ifndef WEFT_KERNELS_COMM_SHM_BELL_H_
#define WEFT_KERNELS_COMM_SHM_BELL_H_

#include <cstdint>

#include "absl/time/time.h"
#include "kernels/comm/shm/board.h"

namespace weft::comm::shm {

// Changes the number and wakes those who sleep on it, in any process. Any
// thread.
void Ring(Flag* bell);

// Returns when the number is no longer `rung`, after `limit`, or now and then
// for no reason.
void SleepUntilRung(const Flag& bell, uint32_t rung, absl::Duration limit);

}  // namespace weft::comm::shm

#endif  // WEFT_KERNELS_COMM_SHM_BELL_H_
