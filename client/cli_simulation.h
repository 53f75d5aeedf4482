// The part of the command line about steps that were simulated or measured.
#ifndef WEFT_CLIENT_CLI_SIMULATION_H_
#define WEFT_CLIENT_CLI_SIMULATION_H_

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "client/exit_code.h"
#include "client/session.h"

namespace weft::client {

// What the flags of these commands are stored in.
struct SimulationArgs {
  std::vector<std::string> jobs;
  std::string job_id;
  std::string out;
  std::string costs;
};

// Adds trace, calibrate and simulate; each sets `*run` to what it does.
void AddSimulationCommands(CLI::App* app, Session& session,
                           SimulationArgs* args,
                           std::function<ExitCode()>* run);

}  // namespace weft::client

#endif  // WEFT_CLIENT_CLI_SIMULATION_H_
