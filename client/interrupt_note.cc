#include "client/interrupt_note.h"

#include <unistd.h>

namespace weft::client {
namespace {

void PrintAndEnd(int signal) {
  static const char kNote[] =
      "\nno longer watching; the job goes on, weftctl cancel stops it\n";
  // There is nobody to tell when the note cannot be written.
  if (write(STDERR_FILENO, kNote, sizeof(kNote) - 1) < 0) _exit(128 + signal);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

InterruptNote::InterruptNote() {
  struct sigaction action = {};
  action.sa_handler = PrintAndEnd;
  sigemptyset(&action.sa_mask);
  // Raised again inside the handler, it must get through.
  action.sa_flags = SA_NODEFER;
  sigaction(SIGINT, &action, &old_interrupt_);
  sigaction(SIGTERM, &action, &old_terminate_);
}

InterruptNote::~InterruptNote() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_terminate_, nullptr);
}

}  // namespace weft::client
