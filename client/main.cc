// weftctl: the command line of Weft.

#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>

#include "client/cli.h"
#include "client/session.h"

namespace {

int TerminalColumns() {
  struct winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  return 80;
}

}  // namespace

int main(int argc, char** argv) {
  weft::client::Session session{"", weft::client::Format::kTable, std::cout,
                                std::cerr};
  session.is_err_terminal = isatty(STDERR_FILENO) != 0;
  session.is_in_terminal = isatty(STDIN_FILENO) != 0;
  session.columns = TerminalColumns();
  const int code = weft::client::RunCli(argc, argv, session);
  std::cout.flush();
  // A full disk or a closed pipe is not a success.
  return code == 0 && !std::cout ? 1 : code;
}
