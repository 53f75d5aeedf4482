// What a rank shows the others of its group in shared memory.
#ifndef WEFT_KERNELS_COMM_SHM_BOARD_H_
#define WEFT_KERNELS_COMM_SHM_BOARD_H_

#include <cstddef>
#include <cstdint>

namespace weft::comm::shm {

inline constexpr int kMaxMembers = 64;  // of a group
inline constexpr int kMaxGroups = 8;    // of a transport
inline constexpr int64_t kWindowBytes = 1 << 20;

// A number that only grows, in arithmetic modulo 2^32, in a cache line of its
// own. Written by one process.
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

// What all ranks must call alike.
struct Call {
  int32_t kind = 0;
  int32_t layer = 0;
  int32_t microbatch = 0;
  int32_t dtype = 0;
  int32_t root = 0;
  int64_t count = 0;  // bytes or elements; an AllToAllV: 0
  char op[32] = {};
};

// What the window holds for one member.
struct Part {
  int64_t offset = 0;
  int64_t bytes = 0;
  // Of an AllToAllV: all bytes sent to it, and a hash of its segments' sizes.
  int64_t all_bytes = 0;
  uint64_t segments = 0;
};

// One rank's for one group. A collective is one or more rounds, which all
// members count alike: a rank publishes what the window holds, reads the
// others' windows when they have published theirs, and says that it has.
struct GroupBoard {
  Flag published;  // the last round whose call, parts and window are there
  Flag taken;      // the last round of which this rank has read all windows
  Flag left;  // the absl::StatusCode of the error it has left with; 0: none
  // Rung by members when one of their flags has changed; the owner sleeps on
  // it.
  Flag bell;

  Call call;
  int32_t has_more;   // another round follows
  char reason[1024];  // with `left`: the message of the error
  Part parts[kMaxMembers];
  alignas(4096) std::byte window[kWindowBytes];
};

struct Board {
  GroupBoard groups[kMaxGroups];
};

}  // namespace weft::comm::shm

#endif  // WEFT_KERNELS_COMM_SHM_BOARD_H_
