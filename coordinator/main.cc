// The coordinator: takes jobs, compiles their plans, runs them on workers.
//
// Exit status: 0 after SIGTERM or SIGINT and for --help, 1 when it could not
// start, 2 for a wrong command line, 3 when it had to end without writing what
// was left to write.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "base/flag_parser.h"
#include "base/logging.h"
#include "coordinator/daemon.h"

ABSL_FLAG(std::string, listen_address, "127.0.0.1:7070",
          "host:port of the gRPC API; port 0 takes a free one.");
ABSL_FLAG(std::string, http_address, "127.0.0.1:7071",
          "ADDRESS:PORT of the status page, /statusz, /metrics, /healthz and "
          "/readyz; port 0 takes a free one, empty turns HTTP off.");
ABSL_FLAG(std::string, state_dir, ".weft/state",
          "Folder of the store; made when missing.");
ABSL_FLAG(std::string, artifacts_dir, ".weft/artifacts",
          "Folder that jobs write to, each into one of its own; workers must "
          "see it under the same path; made when missing.");
ABSL_FLAG(std::string, port_file, "",
          "File that gets the addresses taken, as JSON, once they serve.");
ABSL_FLAG(absl::Duration, heartbeat_interval, absl::Milliseconds(500),
          "How often workers give a sign of life.");
ABSL_FLAG(absl::Duration, heartbeat_timeout, absl::Seconds(4),
          "A worker silent for this long is lost.");
ABSL_FLAG(int, log_verbosity, 0,
          "0 logs lifecycle, 1 also steps, 2 also every message.");

namespace weft::coordinator {
namespace {

constexpr char kSource[] = "coordinator/main.cc";

Daemon::Options OptionsFromFlags() {
  Daemon::Options options;
  options.listen_address = absl::GetFlag(FLAGS_listen_address);
  options.http_address = absl::GetFlag(FLAGS_http_address);
  options.state_dir = absl::GetFlag(FLAGS_state_dir);
  options.artifacts_dir = absl::GetFlag(FLAGS_artifacts_dir);
  options.port_file = absl::GetFlag(FLAGS_port_file);
  options.heartbeat_interval = absl::GetFlag(FLAGS_heartbeat_interval);
  options.heartbeat_timeout = absl::GetFlag(FLAGS_heartbeat_timeout);
  return options;
}

// Until SIGTERM or SIGINT. Every thread must have them blocked.
void WaitForSignal(const sigset_t& signals) {
  int received = 0;
  sigwait(&signals, &received);
  LOG(INFO) << "signal=" << received;
}

int Main(int argc, char** argv) {
  const absl::StatusOr<FlagResult> parsed =
      ParseFlags(std::vector<std::string>(argv + 1, argv + argc), kSource);
  if (!parsed.ok()) {
    std::cerr << "coordinator: " << parsed.status().message() << std::endl;
    return 2;
  }
  if (*parsed == FlagResult::kHelp) {
    std::cout << "Takes training jobs, compiles their plans and runs them on "
                 "workers.\n\n"
              << DescribeFlags(kSource);
    return 0;
  }
  InitLogging(argv[0], absl::GetFlag(FLAGS_log_verbosity));
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  absl::StatusOr<std::unique_ptr<Daemon>> daemon =
      Daemon::Start(OptionsFromFlags());
  if (!daemon.ok()) {
    LOG(ERROR) << "could not start: " << daemon.status();
    return absl::IsInvalidArgument(daemon.status()) ? 2 : 1;
  }
  WaitForSignal(signals);
  const absl::Status ended = (*daemon)->Shutdown();
  if (ended.ok()) return 0;
  LOG(ERROR) << "ends error=" << LogValue(ended.ToString());
  _exit(3);
}

}  // namespace
}  // namespace weft::coordinator

int main(int argc, char** argv) { return weft::coordinator::Main(argc, argv); }
