// What an interrupt says while a command waits for a job.
#ifndef WEFT_CLIENT_INTERRUPT_NOTE_H_
#define WEFT_CLIENT_INTERRUPT_NOTE_H_

#include <csignal>

namespace weft::client {

// While it lives, SIGINT and SIGTERM print that the job goes on, and then end
// the process as they always do.
// One at a time.
class InterruptNote {
 public:
  InterruptNote();
  ~InterruptNote();
  InterruptNote(const InterruptNote&) = delete;
  InterruptNote& operator=(const InterruptNote&) = delete;

 private:
  struct sigaction old_interrupt_;
  struct sigaction old_terminate_;
};

}  // namespace weft::client

#endif  // WEFT_CLIENT_INTERRUPT_NOTE_H_
