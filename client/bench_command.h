// Runs a job to time it.
#ifndef WEFT_CLIENT_BENCH_COMMAND_H_
#define WEFT_CLIENT_BENCH_COMMAND_H_

#include <cstdint>
#include <string>

#include "client/exit_code.h"
#include "client/job_commands.h"
#include "client/session.h"

namespace weft::client {

struct BenchCommandOptions {
  JobFileOptions file;
  int64_t steps = 20;
  int64_t warmup = 5;  // of them are not measured
  bool is_balanced = false;
  // Also runs the job without its all-to-alls, and these alone.
  bool measures_hidden = false;
  std::string trace;  // file for the timeline of the last step; empty: none
};

// Submits the job as it is to be timed (a constant learning rate, no
// validation, files or guards that compare), follows it and prints what its
// steps say: with JSON one object, else a line a number. kExitOk when
// everything ran.
ExitCode Bench(Session& session, const BenchCommandOptions& options);

}  // namespace weft::client

#endif  // WEFT_CLIENT_BENCH_COMMAND_H_
