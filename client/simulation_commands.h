// Commands about steps that were simulated or measured.
#ifndef WEFT_CLIENT_SIMULATION_COMMANDS_H_
#define WEFT_CLIENT_SIMULATION_COMMANDS_H_

#include <string>
#include <vector>

#include "client/exit_code.h"
#include "client/session.h"

namespace weft::client {

// Writes the measured step of a job, all ranks, as one Chrome trace to the file
// `out`, or, when that is empty, to standard output.
ExitCode Trace(Session& session, const std::string& job_id,
               const std::string& out);

// Fits a cost table to the measured steps of jobs and writes it to `out`.
ExitCode CalibrateJobs(Session& session, const std::vector<std::string>& jobs,
                       const std::string& out);

// Prints, for each job that ran, what the simulator says of its measured step
// beside what was measured.
ExitCode SimulateJobs(Session& session, const std::vector<std::string>& jobs,
                      const std::string& costs);

}  // namespace weft::client

#endif  // WEFT_CLIENT_SIMULATION_COMMANDS_H_
