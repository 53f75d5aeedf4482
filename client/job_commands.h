// Commands that submit, follow and stop jobs.
#ifndef WEFT_CLIENT_JOB_COMMANDS_H_
#define WEFT_CLIENT_JOB_COMMANDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/exit_code.h"
#include "client/session.h"

namespace weft::client {

// How progress is shown where there is no terminal, and when to stop waiting.
struct WatchOptions {
  int64_t every_steps = 0;
  double every_seconds = 10;
  absl::Duration timeout = absl::InfiniteDuration();
  bool is_quiet = false;  // no progress at all
};

struct JobFileOptions {
  std::string path;
  std::vector<std::string> sets;
};

struct SubmitOptions {
  JobFileOptions file;
  std::string request_id;
  bool is_waiting = false;
  WatchOptions watch;
};

struct CancelOptions {
  std::string job_id;
  std::string reason;
  bool is_sure = false;
};

ExitCode Submit(Session& session, const SubmitOptions& options);
ExitCode Validate(Session& session, const JobFileOptions& options);

// Shows progress until the job has ended, then the job, and exits by how it
// ended. With JSON each message of the watch is a line on standard output.
ExitCode Watch(Session& session, const std::string& job_id,
               const WatchOptions& options);

// Asks on a terminal; elsewhere refuses unless the user is sure.
ExitCode Cancel(Session& session, const CancelOptions& options);

}  // namespace weft::client

#endif  // WEFT_CLIENT_JOB_COMMANDS_H_
