// The command line of weftctl.
#ifndef WEFT_CLIENT_CLI_H_
#define WEFT_CLIENT_CLI_H_

#include "client/session.h"

namespace weft::client {

// Parses the command line, runs the command and returns the exit status; see
// exit_code.h.
int RunCli(int argc, const char* const* argv, Session& session);

}  // namespace weft::client

#endif  // WEFT_CLIENT_CLI_H_
