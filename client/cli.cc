#include "client/cli.h"

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/nearest_name.h"
#include "client/bench_command.h"
#include "client/cli_files.h"
#include "client/cli_simulation.h"
#include "client/completion.h"
#include "client/enum_names.h"
#include "client/flags.h"
#include "client/golden_command.h"
#include "client/job_commands.h"
#include "client/parity_command.h"
#include "client/view_commands.h"
#include "google/protobuf/generated_enum_reflection.h"

namespace weft::client {
namespace {

// As proto/weft/v1/job.proto bounds them.
constexpr int64_t kMaxSteps = 100000000;
constexpr int64_t kMaxWorld = 65536;

constexpr std::pair<const char*, Format> kFormats[] = {
    {"table", Format::kTable},
    {"json", Format::kJson},
    {"yaml", Format::kYaml},
    {"name", Format::kName}};

// What the flags of all commands are stored in, and the command to run.
struct Parsed {
  JobFileOptions file;
  SubmitOptions submit;
  WatchOptions watch;
  CancelOptions cancel;
  BenchCommandOptions bench;
  GoldenCommandOptions golden;
  ParityCommandOptions parity;
  PlanOptions plan;
  SimulationArgs simulation;
  FileArgs files;
  std::string job_id;
  std::string worker_id;
  std::string timeout;
  int64_t limit = 50;
  int64_t rank = 0;
  bool is_client_only = false;
  bool is_rules = false;
  std::string field;
  std::function<ExitCode()> run;
};

void AddFile(CLI::App* command, JobFileOptions* file, bool is_required) {
  command
      ->add_option("-f,--file", file->path,
                   "YAML job file; - reads from stdin. A relative "
                   "data.prefix is resolved against the current folder")
      ->required(is_required);
  command
      ->add_option("--set", file->sets,
                   "Change a field: path=value, e.g. steps=10; repeatable")
      ->take_all()
      ->allow_extra_args(false);
}

void AddJobId(CLI::App* command, std::string* job_id) {
  command->add_option("job", *job_id, "Job id")->required()->check(Utf8Text());
}

void AddTimeout(CLI::App* command, Parsed* parsed) {
  command
      ->add_option("--timeout", parsed->timeout,
                   "Stop waiting after this long, e.g. 90s or 1h; exits 5")
      ->check([](const std::string& text) {
        absl::Duration duration;
        return absl::ParseDuration(text, &duration) &&
                       duration > absl::ZeroDuration()
                   ? std::string()
                   : "\"" + text + "\" is not a duration such as 30s or 5m";
      });
}

void AddProgress(CLI::App* command, Parsed* parsed) {
  AddInteger(command, "--every-steps,--every_steps", &parsed->watch.every_steps,
             {0, kMaxSteps},
             "Without a terminal: a line after so many steps; 0: by time only");
  AddNumber(command, "--every-seconds,--every_seconds",
            &parsed->watch.every_seconds, {0, 1e9},
            "Without a terminal: a line after so many seconds");
  AddTimeout(command, parsed);
}

WatchOptions Watching(const Parsed& parsed, bool is_quiet) {
  WatchOptions options = parsed.watch;
  options.is_quiet = is_quiet;
  if (!parsed.timeout.empty()) {
    absl::ParseDuration(parsed.timeout, &options.timeout);
  }
  return options;
}

// Adds a command that runs `run` after a successful parse.
CLI::App* AddCommand(CLI::App* parent, const std::string& name,
                     const std::string& help, Parsed* parsed,
                     std::function<ExitCode()> run) {
  CLI::App* command = parent->add_subcommand(name, help);
  command->callback([parsed, run = std::move(run)] { parsed->run = run; });
  return command;
}

// Adds a command that only holds others.
CLI::App* AddGroup(CLI::App* parent, const std::string& name,
                   const std::string& help) {
  CLI::App* group = parent->add_subcommand(name, help);
  group->require_subcommand(1);
  return group;
}

void AddJobCommands(CLI::App* app, Session& session, Parsed* p) {
  CLI::App* submit =
      AddCommand(app, "submit", "Submit a job", p, [&session, p] {
        p->submit.file = p->file;
        p->submit.watch = Watching(*p, false);
        return Submit(session, p->submit);
      });
  AddFile(submit, &p->file, true);
  submit
      ->add_option("--request-id,--request_id", p->submit.request_id,
                   "UUID; the same id submits a job once only")
      ->check(Utf8Text());
  submit->add_flag("--wait", p->submit.is_waiting,
                   "Follow the job and exit by how it ends");
  AddProgress(submit, p);

  CLI::App* validate =
      AddCommand(app, "validate", "Check a job against the coordinator's rules",
                 p, [&session, p] { return Validate(session, p->file); });
  AddFile(validate, &p->file, true);

  CLI::App* watch = AddCommand(
      app, "watch", "Follow a job until it ends", p,
      [&session, p] { return Watch(session, p->job_id, Watching(*p, false)); });
  AddJobId(watch, &p->job_id);
  AddProgress(watch, p);

  CLI::App* wait = AddCommand(
      app, "wait", "Wait for a job without showing progress", p,
      [&session, p] { return Watch(session, p->job_id, Watching(*p, true)); });
  AddJobId(wait, &p->job_id);
  AddTimeout(wait, p);

  CLI::App* cancel = AddCommand(app, "cancel", "Stop a job", p, [&session, p] {
    return Cancel(session, p->cancel);
  });
  AddJobId(cancel, &p->cancel.job_id);
  cancel->add_option("--reason", p->cancel.reason, "Kept with the job")
      ->check(Utf8Text());
  cancel->add_flag("-y,--yes", p->cancel.is_sure, "Do not ask");
}

void AddPlanCommand(CLI::App* app, Session& session, Parsed* p) {
  CLI::App* plan =
      AddCommand(app, "plan", "Show the plan of a job file, or of a known job",
                 p, [&session, p] {
                   if (p->file.path.empty() == p->plan.job_id.empty()) {
                     throw CLI::RequiredError("either --file or a job id");
                   }
                   if (p->file.path.empty() && !p->file.sets.empty()) {
                     throw CLI::ValidationError("--set needs --file");
                   }
                   p->plan.file = p->file;
                   p->plan.rank = static_cast<int>(p->rank);
                   return ShowPlan(session, p->plan);
                 });
  AddFile(plan, &p->file, false);
  plan->add_option("job", p->plan.job_id, "Job id")->check(Utf8Text());
  AddInteger(plan, "--rank", &p->rank, {0, kMaxWorld - 1},
             "Rank whose groups are shown");
  plan->add_flag("--timeline", p->plan.is_timeline,
                 "Draw the streams instead of listing ops");
  plan->add_option("--costs", p->plan.costs,
                   "Also simulate a step with this cost table of calibrate");
  plan->add_option("--trace", p->plan.trace,
                   "Write a simulated step for Perfetto to this file; without "
                   "--costs its times are those of no real device");
}

void AddExplainCommand(CLI::App* app, Session& session, Parsed* p) {
  CLI::App* explain = AddCommand(
      app, "explain", "Say what a field of a job means", p, [&session, p] {
        return p->is_rules ? ListRules(session, p->field)
                           : Explain(session, p->field);
      });
  explain->add_option("field", p->field,
                      "Path, e.g. fsdp.strategy; left out: the whole job");
  explain->add_flag("--rules", p->is_rules,
                    "The coordinator's rules about it instead");
}

void AddViewCommands(CLI::App* app, Session& session, Parsed* p) {
  CLI::App* get = AddGroup(app, "get", "List jobs or workers");
  CLI::App* jobs = AddCommand(
      get, "jobs", "Jobs, newest first", p,
      [&session, p] { return GetJobs(session, static_cast<int>(p->limit)); });
  AddInteger(jobs, "--limit", &p->limit, {0, 1000000},
             "At most so many; 0 for all");
  CLI::App* job = AddCommand(get, "job", "One job", p, [&session, p] {
    return GetJob(session, p->job_id);
  });
  AddJobId(job, &p->job_id);
  AddCommand(get, "workers", "Workers", p,
             [&session] { return GetWorkers(session); });

  CLI::App* describe =
      AddGroup(app, "describe", "Show everything about a job or a worker");
  CLI::App* describe_job =
      AddCommand(describe, "job", "Everything about a job", p,
                 [&session, p] { return Describe(session, p->job_id); });
  AddJobId(describe_job, &p->job_id);
  CLI::App* describe_worker = AddCommand(
      describe, "worker", "Everything about a worker", p,
      [&session, p] { return DescribeOneWorker(session, p->worker_id); });
  describe_worker->add_option("worker", p->worker_id, "Worker id")->required();

  CLI::App* version =
      AddCommand(app, "version", "Print versions", p,
                 [&session, p] { return Version(session, p->is_client_only); });
  version->add_flag("--client", p->is_client_only, "Of weftctl only");
}

// Adds a flag whose values are named as in job files.
template <typename Enum>
void AddEnum(CLI::App* command, const std::string& name, Enum* value,
             const std::string& help) {
  const auto& type = *google::protobuf::GetEnumDescriptor<Enum>();
  command
      ->add_option_function<std::string>(
          name,
          [value, &type](const std::string& text) {
            *value = static_cast<Enum>(FindEnumValue(type, text)->number());
          },
          absl::StrCat(help, ": ", absl::StrJoin(ShortNames(type), ", ")))
      ->check(OneOf(ShortNames(type)));
}

void AddGoldenCommand(CLI::App* app, Session& session, Parsed* p) {
  CLI::App* golden = AddCommand(
      app, "golden",
      "Run reference models as jobs and compare with what they must give", p,
      [&session, p] { return Golden(session, p->golden); });
  GoldenOptions& run = p->golden.run;
  golden
      ->add_option("folder", p->golden.folders,
                   "Folders with a checkpoint, batches and expected values")
      ->required();
  golden
      ->add_option("--work", p->golden.work,
                   "Folder for the datasets, which the workers must be able to "
                   "read; ./weft golden names one")
      ->required();
  AddInteger(golden, "--world", &run.world, {1, kMaxWorld}, "Ranks");
  AddInteger(golden, "--ep", &run.ep, {1, kMaxWorld}, "Expert-parallel size");
  AddInteger(golden, "--microbatch", &run.microbatch, {0, kMaxWorld},
             "Sequences of a microbatch on a rank; 0: as the folder says, else "
             "the rank's whole share");
  AddEnum(golden, "--schedule", &run.order, "Order of node phases");
  golden->add_flag("--delay-wgrad,--delay_wgrad", run.delay_wgrad,
                   "Weight gradients run later");
  AddEnum(golden, "--strategy", &run.strategy, "What is sharded");
  AddEnum(
      golden, "--compute", &p->golden.compute,
      "Format of activations; in bf16 the experts that a run in fp32 chooses "
      "are replayed, and losses and all gradients together are compared");
}

void AddBenchCommand(CLI::App* app, Session& session, Parsed* p) {
  CLI::App* bench = AddCommand(
      app, "bench", "Time the steps of a job: rates, streams, memory, waits", p,
      [&session, p] {
        p->bench.file = p->file;
        return Bench(session, p->bench);
      });
  AddFile(bench, &p->file, true);
  BenchCommandOptions& options = p->bench;
  bench->add_option("--steps", options.steps, "Steps to run")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1000000}));
  bench
      ->add_option("--warmup", options.warmup,
                   "Steps at the begin that are not measured")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1000000}));
  bench->add_flag("--balanced", options.is_balanced,
                  "Tokens go to experts in turn, whatever the routers say");
  bench->add_flag("--hidden", options.measures_hidden,
                  "Also time the job without its all-to-alls, and these alone");
  bench->add_flag_callback(
      "--json", [&session] { session.format = Format::kJson; },
      "Print one JSON object");
  bench->add_option("--trace", options.trace,
                    "File for the timeline of the last step");
}

void AddParityCommand(CLI::App* app, Session& session, Parsed* p) {
  CLI::App* parity = AddCommand(
      app, "parity",
      "Run a job under every legal combination and compare the results", p,
      [&session, p] {
        p->parity.file = p->file;
        return Parity(session, p->parity);
      });
  AddFile(parity, &p->file, true);
  parity
      ->add_option("--vary", p->parity.vary,
                   "What to vary, of schedule, delay_wgrad, strategy, world, "
                   "ep, microbatch, dispatcher, and recompute; commas between")
      ->delimiter(',')
      ->required();
}

void AddGlobalFlags(CLI::App* app, Session& session) {
  app->add_option("--coordinator", session.coordinator_flag,
                  "HOST:PORT; else $WEFT_COORDINATOR, else the file "
                  ".weft/coordinator here or above");
  std::vector<std::string> names;
  for (const auto& [name, format] : kFormats) names.push_back(name);
  const auto store = [&session](const std::string& wanted) {
    for (const auto& [name, format] : kFormats) {
      if (wanted == name) session.format = format;
    }
  };
  app->add_option_function<std::string>("-o,--output", store,
                                        "table, json, yaml or name. json "
                                        "spells enums as the API does, "
                                        "JOB_STATE_QUEUED; yaml says queued")
      ->option_text("FORMAT")
      ->check(OneOf(names));
}

// The commands that were named, from weftctl on.
std::vector<const CLI::App*> WordsOf(const CLI::App& app) {
  std::vector<const CLI::App*> words = {&app};
  while (!words.back()->get_subcommands().empty()) {
    words.push_back(words.back()->get_subcommands().back());
  }
  return words;
}

std::string HelpHint(const CLI::App& app) {
  std::string hint = "hint:";
  for (const CLI::App* word : WordsOf(app)) {
    absl::StrAppend(&hint, " ", word->get_name());
  }
  return hint + " --help\n";
}

// What is wrong with the command line: a word that names no command, or what
// the parser says.
std::string UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = WordsOf(app).back();
  std::vector<std::string> names;
  for (const CLI::App* sub : command->get_subcommands({})) {
    names.push_back(sub->get_name());
  }
  const std::vector<std::string> rest = app.remaining(true);
  if (names.empty() || rest.empty() || rest[0][0] == '-') return error.what();
  return absl::StrCat("unknown command \"", rest[0], "\"",
                      KnownNames(rest[0], names));
}

}  // namespace

int RunCli(int argc, const char* const* argv, Session& session) {
  CLI::App app("weftctl: submit training jobs and follow them", "weftctl");
  Parsed parsed;
  app.require_subcommand(1);
  app.fallthrough();  // global flags may come last; commands inherit this
  app.footer(
      "Exit status: 0 done; 1 failed; 2 wrong usage; 3 the job failed; "
      "4 it was cancelled;\n5 timed out; 69 no coordinator answers.\n");
  AddGlobalFlags(&app, session);
  AddJobCommands(&app, session, &parsed);
  AddViewCommands(&app, session, &parsed);
  AddPlanCommand(&app, session, &parsed);
  AddExplainCommand(&app, session, &parsed);
  AddFileCommands(&app, session, &parsed.files, &parsed.run);
  AddGoldenCommand(&app, session, &parsed);
  AddBenchCommand(&app, session, &parsed);
  AddParityCommand(&app, session, &parsed);
  AddSimulationCommands(&app, session, &parsed.simulation, &parsed.run);
  CLI::App* completion =
      AddGroup(&app, "completion", "Print a script that completes commands");
  AddCommand(completion, "bash", "For bash: source <(weftctl completion bash)",
             &parsed, [&] {
               session.out << BashCompletion(app);
               return kExitOk;
             });
  RefuseEmptyValues(&app);
  try {
    RefuseFlagsWithoutValue(argc, argv);
    app.parse(argc, argv);
    return parsed.run();
  } catch (const CLI::CallForHelp&) {
    session.out << app.help();
    return kExitOk;
  } catch (const CLI::ParseError& e) {
    session.err << "error: " << UsageError(app, e) << "\n" << HelpHint(app);
    return kExitUsage;
  }
}

}  // namespace weft::client
