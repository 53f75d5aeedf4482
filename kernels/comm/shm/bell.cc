#include "kernels/comm/shm/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace weft::comm::shm {

void Ring(Flag* bell) {
  __atomic_add_fetch(&bell->value, 1, __ATOMIC_RELEASE);
  ::syscall(SYS_futex, &bell->value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SleepUntilRung(const Flag& bell, uint32_t rung, absl::Duration limit) {
  if (limit <= absl::ZeroDuration()) return;
  const timespec timeout = absl::ToTimespec(limit);
  ::syscall(SYS_futex, &bell.value, FUTEX_WAIT, rung, &timeout, nullptr, 0);
}

}  // namespace weft::comm::shm
