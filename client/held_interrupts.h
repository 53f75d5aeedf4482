// Lets a command clean up before an interrupt ends it.
#ifndef WEFT_CLIENT_HELD_INTERRUPTS_H_
#define WEFT_CLIENT_HELD_INTERRUPTS_H_

#include <csignal>

#include "absl/status/status.h"

namespace weft::client {

// While it lives, SIGINT, SIGTERM and SIGHUP wait. They do their work when it
// goes; so what has to be cleaned up goes before.
//
// Requires: the process has one thread.
class HeldInterrupts {
 public:
  HeldInterrupts();
  ~HeldInterrupts();
  HeldInterrupts(const HeldInterrupts&) = delete;
  HeldInterrupts& operator=(const HeldInterrupts&) = delete;

  // Waits until `fd` can be read. CANCELLED when one of the signals came.
  absl::Status AwaitInput(int fd) const;

 private:
  sigset_t old_mask_;
  int signal_fd_;  // readable when a signal waits; -1 when there is none
};

}  // namespace weft::client

#endif  // WEFT_CLIENT_HELD_INTERRUPTS_H_
