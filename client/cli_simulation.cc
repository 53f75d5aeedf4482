#include "client/cli_simulation.h"

#include "client/flags.h"
#include "client/simulation_commands.h"

namespace weft::client {
namespace {

void AddJobs(CLI::App* command, std::vector<std::string>* jobs) {
  command
      ->add_option("job", *jobs,
                   "Ids of jobs that ran with output.trace_step set")
      ->required()
      ->check(Utf8Text());
}

}  // namespace

void AddSimulationCommands(CLI::App* app, Session& session,
                           SimulationArgs* args,
                           std::function<ExitCode()>* run) {
  CLI::App* trace = app->add_subcommand(
      "trace", "Write the measured step of a job for Perfetto");
  trace->add_option("job", args->job_id, "Job id")
      ->required()
      ->check(Utf8Text());
  trace->add_option("--out", args->out, "File; left out: standard output");
  trace->callback([=, &session] {
    *run = [=, &session] { return Trace(session, args->job_id, args->out); };
  });

  CLI::App* calibrate = app->add_subcommand(
      "calibrate",
      "Fit the simulator's costs to measured steps: best of a dozen jobs or "
      "more of various shapes, run on a machine that does nothing else");
  AddJobs(calibrate, &args->jobs);
  calibrate->add_option("--out", args->out, "File for the cost table, JSON")
      ->required();
  calibrate->callback([=, &session] {
    *run = [=, &session] {
      return CalibrateJobs(session, args->jobs, args->out);
    };
  });

  CLI::App* simulate = app->add_subcommand(
      "simulate",
      "Compare the simulator with the measured steps of jobs; runs "
      "of one job count as one");
  AddJobs(simulate, &args->jobs);
  simulate->add_option("--costs", args->costs, "Cost table of calibrate")
      ->required();
  simulate->callback([=, &session] {
    *run = [=, &session] {
      return SimulateJobs(session, args->jobs, args->costs);
    };
  });
}

}  // namespace weft::client
