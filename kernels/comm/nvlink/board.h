// What the ranks of a host tell each other through shared memory.
#ifndef WEFT_KERNELS_COMM_NVLINK_BOARD_H_
#define WEFT_KERNELS_COMM_NVLINK_BOARD_H_

#include <cstdint>

namespace weft::comm::nvlink {

inline constexpr int kMaxMembers = 16;  // of a group
inline constexpr int kMaxGroups = 8;    // of a transport
inline constexpr int64_t kLetterBytes = 16 << 10;
inline constexpr int64_t kWindowBytes = 256 << 10;

// A number in a cache line of its own, written and awaited by streams and by
// hosts. Where nothing else is said it only grows, in arithmetic modulo 2^32.
struct alignas(64) Flag {
  uint32_t value;
};

inline uint32_t Load(const Flag& flag) {
  return __atomic_load_n(&flag.value, __ATOMIC_ACQUIRE);
}
inline void Store(Flag* flag, uint32_t value) {
  __atomic_store_n(&flag->value, value, __ATOMIC_RELEASE);
}
// Whether `value` has come to `wanted`.
inline bool HasReached(uint32_t value, uint32_t wanted) {
  return static_cast<int32_t>(value - wanted) >= 0;
}

// One rank's for one group. A collective is one or more rounds, which both
// sides count.
struct GroupBoard {
  // Written by member m: the round of m's data that this rank may read.
  Flag ready[kMaxMembers];
  // Written by member m: the round of this rank's data that m has read.
  Flag consumed[kMaxMembers];
  // The same of rounds in graphs, which do the same each time and so cannot
  // count: member m writes 1, this rank's stream writes 0 when it has seen it.
  Flag replay_ready[kMaxMembers];
  Flag replay_consumed[kMaxMembers];

  // What this rank's host tells the others': the number of its last letter, and
  // of the last of which it has read everybody's.
  Flag posted;
  Flag read;
  uint32_t letter_bytes;
  char letter[kLetterBytes];

  // Data of this rank that lies where peers cannot read it.
  alignas(4096) char window[kWindowBytes];
};

struct Board {
  GroupBoard groups[kMaxGroups];
};

}  // namespace weft::comm::nvlink

#endif  // WEFT_KERNELS_COMM_NVLINK_BOARD_H_
