// Runs one job under many combinations and says whose results are equal.
#ifndef WEFT_CLIENT_PARITY_COMMAND_H_
#define WEFT_CLIENT_PARITY_COMMAND_H_

#include <string>
#include <vector>

#include "client/exit_code.h"
#include "client/job_commands.h"
#include "client/session.h"

namespace weft::client {

struct ParityCommandOptions {
  JobFileOptions file;
  std::vector<std::string> vary;  // names of axes, see parity.h
};

// Submits the combinations one after another, in worlds as large as the
// attached workers allow, prints a row each and then how many were generated,
// refused and run. kExitOk when all that ran succeeded, at least one of each
// class did, and results are as equal as they must be.
ExitCode Parity(Session& session, const ParityCommandOptions& options);

}  // namespace weft::client

#endif  // WEFT_CLIENT_PARITY_COMMAND_H_
