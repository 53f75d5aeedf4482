// Commands that show what there is.
#ifndef WEFT_CLIENT_VIEW_COMMANDS_H_
#define WEFT_CLIENT_VIEW_COMMANDS_H_

#include <string>
#include <vector>

#include "client/exit_code.h"
#include "client/job_commands.h"
#include "client/session.h"

namespace weft::client {

// Jobs, newest first; at most `limit`, 0 for all.
ExitCode GetJobs(Session& session, int limit);
ExitCode GetJob(Session& session, const std::string& job_id);
ExitCode GetWorkers(Session& session);
ExitCode Describe(Session& session, const std::string& job_id);
ExitCode DescribeOneWorker(Session& session, const std::string& worker_id);

// The plan of a job file, compiled here, or, without one, of a job the
// coordinator knows.
struct PlanOptions {
  JobFileOptions file;  // without path: job_id
  std::string job_id;
  int rank = 0;
  bool is_timeline = false;  // draw it instead of listing ops
  // Also simulate a step: with this cost table, with modelled costs when it is
  // empty and `trace` is not.
  std::string costs;
  std::string trace;  // file for its Chrome trace; empty: none
};
ExitCode ShowPlan(Session& session, const PlanOptions& options);

// What a field of a job means; of the whole job when `path` is empty.
ExitCode Explain(Session& session, const std::string& path);

// The coordinator's rules about the fields at or below `path`; all when it is
// empty.
ExitCode ListRules(Session& session, const std::string& path);

// Of this program, and of the coordinator unless `is_client_only`.
ExitCode Version(Session& session, bool is_client_only);

}  // namespace weft::client

#endif  // WEFT_CLIENT_VIEW_COMMANDS_H_
