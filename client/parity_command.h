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
// attached workers allow, and prints a row each, the counts of each class, why
// combinations were refused and how many were generated, refused and executed.
// kExitOk when the matrix holds, see parity_matrix.h.
ExitCode Parity(Session& session, const ParityCommandOptions& options);

}  // namespace weft::client

#endif  // WEFT_CLIENT_PARITY_COMMAND_H_
