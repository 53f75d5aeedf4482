#include "worker/run_worker.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/advertised_address.h"
#include "base/clock.h"
#include "base/flag_parser.h"
#include "base/library_version.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "base/ticker.h"
#include "base/version.h"
#include "monitoring/http_server.h"
#include "worker/service/attachment.h"
#include "worker/service/backend.h"
#include "worker/service/daemon.h"
#include "worker/service/device_rank.h"
#include "worker/service/flag_rules.h"
#include "worker/service/health_server.h"
#include "worker/service/outbox.h"
#include "worker/service/process_figures.h"
#include "worker/service/pulse.h"
#include "worker/service/signal_watcher.h"
#include "worker/service/supervisor.h"
#include "worker/supervise.h"
#include "worker/telemetry/metrics.h"
#include "worker/telemetry/pages.h"

ABSL_FLAG(std::string, coordinator, "127.0.0.1:7070",
          "Coordinator to attach to, HOST:PORT.");
ABSL_FLAG(std::string, worker_id, "",
          "Name of this worker; empty: the coordinator names it.");
ABSL_FLAG(std::string, device, "cpu",
          "Device to own, KIND or KIND:ORDINAL: cpu, and cuda in a build with "
          "CUDA.");
ABSL_FLAG(std::string, devices, "",
          "Supervise one worker process a device instead of being one: all, or "
          "how many. Worker I is --worker_id-I, by default HOST-I, and serves "
          "HTTP on the port I above that of --http_address.");
ABSL_FLAG(bool, supervised, false,
          "Set by --devices in the processes it starts: reports on descriptor "
          "3.");
ABSL_FLAG(std::string, health_address, "",
          "Where the standard gRPC health service answers for the names "
          "startup, readiness (attached) and liveness, HOST:PORT; port 0 takes "
          "a free one; empty: nowhere.");
ABSL_FLAG(
    std::string, transport, weft::service::kAutoTransport,
    "How ranks talk, the same on all workers: ucx, or shm between workers of "
    "one host (cpu); nccl, or nvlink, which copies between the GPUs of one "
    "host (cuda); auto: ucx; nvlink where the GPUs of a job can all read each "
    "other's memory, else nccl. Dispatcher flex uses shm or nvlink whatever "
    "this says.");
ABSL_FLAG(int64_t, device_memory, 0,
          "Device memory a job may use, bytes; 0: no limit.");
ABSL_FLAG(std::string, http_address, "127.0.0.1:0",
          "Where /, /statusz, /metrics, /healthz and /readyz are served, "
          "ADDRESS:PORT; port 0 takes a free one; empty: nowhere.");
ABSL_FLAG(std::string, released_memory, "keep",
          "What happens to device memory whose content is dead: keep, poison "
          "(fill with NaN) or return (give its pages back).");
ABSL_FLAG(bool, check_live_set, false,
          "Fail a step whose resident memory exceeds the plan's live set; "
          "needs --released_memory=return; slow.");
ABSL_FLAG(bool, measure_memory, false,
          "Report the peak of memory really resident in a step, instead of the "
          "plan's; needs --released_memory=return; slow.");
ABSL_FLAG(absl::Duration, grace, absl::Seconds(20),
          "Longest time an orderly end may take after SIGTERM.");
ABSL_FLAG(int, log_verbosity, 0,
          "0: one line an event; 1: one a step; 2: one an op.");

namespace weft::service {
namespace {

constexpr char kSource[] = "worker/run_worker.cc";
// How long the last messages may take to go out.
constexpr absl::Duration kDetachPatience = absl::Seconds(2);
// How often the worker says that its loop turns.
constexpr absl::Duration kPulse = absl::Milliseconds(500);

// The program's own path, or an empty string.
std::string OwnPath() {
  char path[PATH_MAX] = "";
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 1);
  return std::string(path, std::max<ssize_t>(size, 0));
}

// One thread a stream computes; OpenMP inside oneDNN must not add its own. It
// reads the environment before main(), hence the new start.
void UseOneThreadPerStream(char** argv) {
  const char* threads = getenv("OMP_NUM_THREADS");
  if (threads != nullptr && std::string(threads) == "1") return;
  setenv("OMP_NUM_THREADS", "1", /*overwrite=*/1);
  // By its own path, so that process lists go on showing the name.
  const std::string path = OwnPath();
  if (!path.empty()) execv(path.c_str(), argv);
  std::cerr << "worker: cannot restart with OMP_NUM_THREADS=1; set it\n";
  _exit(1);
}

// What does not concern jobs.
absl::Status CheckFlags() {
  RETURN_IF_ERROR(CheckCoordinator(absl::GetFlag(FLAGS_coordinator)));
  RETURN_IF_ERROR(CheckWorkerId(absl::GetFlag(FLAGS_worker_id)));
  const std::string http_address = absl::GetFlag(FLAGS_http_address);
  if (!http_address.empty()) {
    const absl::Status legal =
        monitoring::HttpServer::CheckAddress(http_address);
    if (!legal.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--", legal.message()));
    }
  }
  const std::string health_address = absl::GetFlag(FLAGS_health_address);
  if (!health_address.empty()) {
    RETURN_IF_ERROR(CheckListenAddress("health_address", health_address));
  }
  if (absl::GetFlag(FLAGS_grace) < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--grace=", absl::FormatDuration(absl::GetFlag(FLAGS_grace)),
        " is negative; how long an orderly end may take"));
  }
  return absl::OkStatus();
}

absl::StatusOr<DeviceRankOptions> RankOptions(
    absl::Span<const Backend* const> known) {
  RETURN_IF_ERROR(CheckFlags());
  DeviceRankOptions options;
  ASSIGN_OR_RETURN(const DeviceName device,
                   ParseDevice(absl::GetFlag(FLAGS_device), known));
  options.backend = device.backend;
  options.ordinal = device.ordinal;
  options.transport = absl::GetFlag(FLAGS_transport);
  RETURN_IF_ERROR(CheckTransport(options.transport, *options.backend));
  options.clock = &RealClock();
  options.device_memory_bytes = absl::GetFlag(FLAGS_device_memory);
  options.check_live_set = absl::GetFlag(FLAGS_check_live_set);
  options.measure_memory = absl::GetFlag(FLAGS_measure_memory);
  const std::string released = absl::GetFlag(FLAGS_released_memory);
  if (options.device_memory_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device_memory=", options.device_memory_bytes,
                     " is negative; bytes, or 0 for no limit"));
  }
  if (released == "poison") {
    options.released_memory = exec::ReleasedMemory::kPoison;
  } else if (released == "return") {
    options.released_memory = exec::ReleasedMemory::kReturn;
  } else if (released != "keep") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--released_memory=", released, " is none of keep, poison, return"));
  }
  if (options.check_live_set &&
      options.released_memory != exec::ReleasedMemory::kReturn) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--check_live_set needs --released_memory=return, not ", released));
  }
  if (options.measure_memory &&
      options.released_memory != exec::ReleasedMemory::kReturn) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--measure_memory needs --released_memory=return, not ", released));
  }
  if (options.released_memory == exec::ReleasedMemory::kReturn &&
      !options.backend->returns_pages()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--released_memory=return: a device of kind ", options.backend->kind(),
        " cannot give pages back; keep or poison"));
  }
  return options;
}

// What the backend is built on; logs it. FAILED_PRECONDITION when something is
// too old.
absl::StatusOr<std::vector<LibraryVersion>> ReadLibraries(
    const Backend& backend) {
  ASSIGN_OR_RETURN(std::vector<LibraryVersion> libraries, backend.libraries());
  LOG(INFO) << "libraries " << DescribeLibraries(libraries);
  RETURN_IF_ERROR(CheckLibraries(libraries));
  return libraries;
}

worker::v1::Register Identity(const std::string& http_address,
                              const std::string& device,
                              const std::vector<LibraryVersion>& libraries) {
  worker::v1::Register identity;
  identity.set_worker_id(absl::GetFlag(FLAGS_worker_id));
  std::random_device random;
  identity.set_incarnation(uint64_t{random()} << 32 | random());
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  identity.set_host(host);
  identity.set_pid(getpid());
  identity.set_device(device);
  identity.set_device_memory_bytes(absl::GetFlag(FLAGS_device_memory));
  identity.set_http_address(http_address);
  for (const LibraryVersion& library : libraries) {
    v1::Library& said = *identity.add_libraries();
    said.set_name(library.name);
    said.set_version(ToString(library.version));
  }
  return identity;
}

// Null when nothing is to be served.
absl::StatusOr<std::unique_ptr<monitoring::HttpServer>> StartHttp(
    const telemetry::WorkerMetrics& metrics, const Daemon& daemon,
    const Pulse& pulse) {
  monitoring::HttpServer::Options options;
  options.address = absl::GetFlag(FLAGS_http_address);
  if (options.address.empty()) return nullptr;
  telemetry::PageSources sources;
  sources.metrics = [&metrics] { return metrics.Scrape(); };
  sources.status = [&daemon] { return daemon.Status(); };
  sources.status_json = [&daemon] { return daemon.StatusJson(); };
  sources.health = [&pulse] { return pulse.Check(); };
  sources.readiness = [&daemon] { return daemon.Readiness(); };
  options.pages = telemetry::MakePages(sources);
  ASSIGN_OR_RETURN(auto http,
                   monitoring::HttpServer::Start(std::move(options)));
  LOG(INFO) << "http=" << http->address();
  return http;
}

// Null when nobody asks.
absl::StatusOr<std::unique_ptr<HealthServer>> StartHealth(const Pulse& pulse) {
  HealthServer::Options options;
  options.pulse = &pulse;
  options.address = absl::GetFlag(FLAGS_health_address);
  if (options.address.empty()) return nullptr;
  ASSIGN_OR_RETURN(auto health, HealthServer::Start(options));
  LOG(INFO) << "health=" << health->address();
  return health;
}

// Who this worker is, once its device is seen to work. `http` may be null.
absl::StatusOr<worker::v1::Register> Identify(
    const DeviceRankOptions& rank_options, const monitoring::HttpServer* http,
    telemetry::WorkerMetrics* metrics) {
  const Backend& backend = *rank_options.backend;
  RETURN_IF_ERROR(backend.Check(rank_options.ordinal));
  ASSIGN_OR_RETURN(const std::vector<LibraryVersion> libraries,
                   ReadLibraries(backend));
  ASSIGN_OR_RETURN(const std::string model,
                   backend.Model(rank_options.ordinal));
  const std::string device = absl::StrCat(absl::GetFlag(FLAGS_device),
                                          model.empty() ? "" : " ", model);
  metrics->SetBuild(kVersion, device, DescribeLibraries(libraries));
  return Identity(http == nullptr ? "" : AdvertisedAddress(http->address()),
                  device, libraries);
}

// Says that the worker's own loop turns, and what is true of it. A supervisor
// hears of it once the device is there: until then its patience runs.
void Beat(const Daemon& daemon, bool has_device, Pulse* pulse,
          HealthServer* health) {
  pulse->Beat();
  const Health now = {has_device, has_device && daemon.Readiness().ok()};
  if (health != nullptr) health->Set(now);
  if (has_device && absl::GetFlag(FLAGS_supervised)) {
    Supervisor::Report(now.is_ready);
  }
}

// Serves jobs until a signal. OK when it ends as asked.
absl::Status Serve(const DeviceRankOptions& rank_options) {
  const std::unique_ptr<RankFactory> ranks =
      MakeDeviceRankFactory(rank_options);
  std::atomic<int64_t> device_bytes{0};
  const auto figures = [&] { return ReadProcessFigures(device_bytes.load()); };
  telemetry::WorkerMetrics metrics;
  Outbox outbox;
  Daemon::Options options;
  options.ranks = ranks.get();
  options.outbox = &outbox;
  options.clock = &RealClock();
  options.metrics = &metrics;
  options.device_bytes = &device_bytes;
  Daemon daemon(options);
  const absl::Status shutting_down =
      absl::UnavailableError("the worker is shutting down");
  SignalWatcher watcher(absl::GetFlag(FLAGS_grace),
                        [&] { daemon.Shutdown(shutting_down); });
  Pulse pulse(RealClock());
  ASSIGN_OR_RETURN(const std::unique_ptr<monitoring::HttpServer> http,
                   StartHttp(metrics, daemon, pulse));
  ASSIGN_OR_RETURN(const std::unique_ptr<HealthServer> health,
                   StartHealth(pulse));
  std::atomic<bool> has_device{false};
  const auto beat = [&] { Beat(daemon, has_device, &pulse, health.get()); };
  const Ticker ticker(kPulse, beat);
  Attachment::Options attach;
  ASSIGN_OR_RETURN(attach.identity,
                   Identify(rank_options, http.get(), &metrics));
  has_device = true;
  beat();
  attach.coordinator = absl::GetFlag(FLAGS_coordinator);
  attach.outbox = &outbox;
  attach.handler = &daemon;
  attach.figures = figures;
  Attachment attachment(std::move(attach));

  absl::Status outcome;
  std::thread reader([&] {
    outcome = attachment.Run();
    // Without a coordinator for good, there is nothing left to do.
    daemon.Shutdown(outcome.ok() ? shutting_down : outcome);
  });
  daemon.RunJobs();
  // What the last job said still goes out.
  attachment.Shutdown(kDetachPatience);
  reader.join();
  return outcome;
}

// The exit code.
int RunSupervisor(const Backend& backend,
                  const std::vector<std::string>& arguments) {
  SuperviseOptions options;
  options.devices = absl::GetFlag(FLAGS_devices);
  options.device = absl::GetFlag(FLAGS_device);
  options.backend = &backend;
  options.worker_id = absl::GetFlag(FLAGS_worker_id);
  options.http_address = absl::GetFlag(FLAGS_http_address);
  options.health_address = absl::GetFlag(FLAGS_health_address);
  options.grace = absl::GetFlag(FLAGS_grace);
  Supervisor::BlockSignals();
  const absl::StatusOr<int> code = Supervise(options, OwnPath(), arguments);
  if (code.ok()) return *code;
  std::cerr << "worker: " << code.status().message() << std::endl;
  return absl::IsInvalidArgument(code.status()) ? 2 : 1;
}

}  // namespace

int RunWorker(int argc, char** argv, absl::Span<const Backend* const> known) {
  // First, also of what is started anew below: as PID 1, a process that neither
  // blocks nor handles a signal never hears of it.
  SignalWatcher::BlockSignals();
  const absl::StatusOr<FlagResult> parsed =
      ParseFlags(std::vector<std::string>(argv + 1, argv + argc), kSource);
  if (!parsed.ok()) {
    std::cerr << "worker: " << parsed.status().message() << std::endl;
    return 2;
  }
  if (*parsed == FlagResult::kHelp) {
    std::cout << "Attaches to a coordinator and trains job after job on one "
                 "device.\n\n"
              << DescribeFlags(kSource);
    return 0;
  }
  UseOneThreadPerStream(argv);
  InitLogging(argv[0], absl::GetFlag(FLAGS_log_verbosity));
  signal(SIGPIPE, SIG_IGN);
  const absl::StatusOr<DeviceRankOptions> options = RankOptions(known);
  if (!options.ok()) {
    std::cerr << "worker: " << options.status().message() << std::endl;
    return absl::IsInvalidArgument(options.status()) ? 2 : 1;
  }
  if (!absl::GetFlag(FLAGS_devices).empty()) {
    return RunSupervisor(*options->backend,
                         std::vector<std::string>(argv + 1, argv + argc));
  }
  const absl::Status outcome = Serve(*options);
  if (outcome.ok()) return 0;
  LOG(ERROR) << "ends error=" << LogValue(outcome.ToString());
  return absl::IsInvalidArgument(outcome) ? 2 : 1;
}

}  // namespace weft::service
