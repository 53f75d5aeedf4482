// Runs reference models as ordinary jobs and checks what they leave.
#ifndef WEFT_CLIENT_GOLDEN_COMMAND_H_
#define WEFT_CLIENT_GOLDEN_COMMAND_H_

#include <string>
#include <vector>

#include "client/exit_code.h"
#include "client/golden_case.h"
#include "client/session.h"

namespace weft::client {

struct GoldenCommandOptions {
  std::vector<std::string> folders;
  GoldenOptions run;
  // Of activations and of parameters as read.
  v1::NumberFormat compute = v1::NUMBER_FORMAT_UNSPECIFIED;
  // Folder for the datasets; the workers must be able to read it.
  std::string work;
};

// Submits a job for each folder, one after another, and one more for each
// further step whose routing the folder knows, and prints a row a check. In
// bf16 it submits two: one in fp32, and one that replays its routing
// (golden_bf16.h). kExitOk only when every check of every folder holds.
ExitCode Golden(Session& session, const GoldenCommandOptions& options);

}  // namespace weft::client

#endif  // WEFT_CLIENT_GOLDEN_COMMAND_H_
