#include "coordinator/daemon.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/advertised_address.h"
#include "base/clock.h"
#include "base/file/atomic_file.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "base/ticker.h"
#include "base/version.h"
#include "coordinator/core/dispatcher.h"
#include "coordinator/core/job_observer.h"
#include "coordinator/core/schedule_compiler.h"
#include "coordinator/http/metrics.h"
#include "coordinator/http/pages.h"
#include "coordinator/http/status_page.h"
#include "coordinator/records/job_records.h"
#include "coordinator/service/grpc_server.h"
#include "coordinator/store/sqlite_store.h"
#include "monitoring/http_server.h"
#include "weft/v1/cluster_service.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
// How often the answer to probes is brought up to date.
constexpr absl::Duration kHealthPeriod = absl::Milliseconds(500);
// What calls under way get to end in.
constexpr absl::Duration kShutdownGrace = absl::Seconds(1);
// What records that are not yet written get to be so in.
constexpr absl::Duration kRecordsGrace = absl::Seconds(5);

// Makes the folder and tries it: a mounted volume is there, whether or not this
// user may write to it.
absl::Status MakeFolder(const std::string& path, absl::string_view flag) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error && !std::filesystem::is_directory(path)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot make --", flag, "=", path, ": ", error.message()));
  }
  const std::string probe = absl::StrCat(path, "/.probe-", getpid());
  const int fd = open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const bool is_written = fd >= 0 && write(fd, "\n", 1) == 1;
  const int cause = errno;
  if (fd >= 0) {
    close(fd);
    unlink(probe.c_str());
  }
  if (is_written) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot write to --", flag, "=", path, " as uid ", geteuid(),
                   ", gid ", getegid(), ": ", strerror(cause)));
}

absl::Status CheckAddress(absl::string_view flag, absl::string_view address) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon != absl::string_view::npos && colon > 0 &&
      absl::SimpleAtoi(address.substr(colon + 1), &port) && port >= 0 &&
      port <= 65535) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", address,
                   "; must be host:port with a port from 0 to 65535"));
}

absl::Status CheckOptions(const Daemon::Options& options) {
  RETURN_IF_ERROR(CheckAddress("listen_address", options.listen_address));
  if (!options.http_address.empty()) {
    const absl::Status legal =
        monitoring::HttpServer::CheckAddress(options.http_address);
    if (!legal.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--", legal.message()));
    }
  }
  if (options.heartbeat_interval < absl::Milliseconds(10)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "heartbeat_interval=", absl::FormatDuration(options.heartbeat_interval),
        "; must be at least 10ms"));
  }
  if (options.heartbeat_timeout < 2 * options.heartbeat_interval ||
      options.heartbeat_timeout > absl::Hours(1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "heartbeat_timeout=", absl::FormatDuration(options.heartbeat_timeout),
        "; must be at least twice heartbeat_interval=",
        absl::FormatDuration(options.heartbeat_interval), " and at most 1h"));
  }
  return absl::OkStatus();
}

class DaemonImpl : public Daemon {
 public:
  explicit DaemonImpl(Options options) : options_(std::move(options)) {}
  ~DaemonImpl() override { Shutdown().IgnoreError(); }

  absl::Status Start() {
    RETURN_IF_ERROR(CheckOptions(options_));
    RETURN_IF_ERROR(MakeFolder(options_.state_dir, "state_dir"));
    RETURN_IF_ERROR(MakeFolder(options_.artifacts_dir, "artifacts_dir"));
    ASSIGN_OR_RETURN(store_,
                     SqliteStore::Open(options_.state_dir + "/coordinator.db"));
    RETURN_IF_ERROR(StartDispatcher());
    RETURN_IF_ERROR(StartServers());
    compile_ticker_ =
        std::make_unique<Ticker>(kTick, [this] { dispatcher_->CompileNext(); });
    ticker_ = std::make_unique<Ticker>(kTick, [this] { dispatcher_->Tick(); });
    health_ticker_ = std::make_unique<Ticker>(kHealthPeriod, [this] {
      grpc_server_->SetReady(dispatcher_->IsAnswering());
      grpc_server_->SetAlive(!dispatcher_->IsStuck());
    });
    has_started_ = true;
    LOG(INFO) << "coordinator version=" << kVersion
              << " grpc=" << grpc_address() << " http=" << http_address()
              << " state_dir=" << LogValue(options_.state_dir);
    return WritePortFile();
  }

  const std::string& grpc_address() const override {
    return grpc_server_->address();
  }
  const std::string& http_address() const override {
    static const std::string& none = *new std::string();
    return http_server_ == nullptr ? none : http_server_->address();
  }

  absl::Status Shutdown() override {
    if (!is_serving_.exchange(false)) return absl::OkStatus();
    if (ticker_ != nullptr) LOG(INFO) << "coordinator shuts down";
    health_ticker_.reset();
    // First: what follows may wait for the store.
    if (grpc_server_ != nullptr) grpc_server_->SetReady(false);
    ticker_.reset();
    compile_ticker_.reset();
    if (dispatcher_ != nullptr) dispatcher_->Shutdown();
    if (grpc_server_ != nullptr) grpc_server_->Shutdown(kShutdownGrace);
    const int64_t left = records_.Finish(kRecordsGrace);
    if (left == 0) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat(
        left, " records of jobs could not be written in ",
        absl::FormatDuration(kRecordsGrace),
        ": the volume of --artifacts_dir=", options_.artifacts_dir, " hangs"));
  }

 private:
  absl::Status StartDispatcher() {
    Dispatcher::Options options;
    options.clock = &RealClock();
    options.store = store_.get();
    options.compiler = &compiler_;
    options.observer = &observers_;
    options.heartbeat_interval = options_.heartbeat_interval;
    options.heartbeat_timeout = options_.heartbeat_timeout;
    options.tick_interval = kTick;
    // Workers read this path too, from folders of their own.
    options.artifacts_dir =
        std::filesystem::absolute(options_.artifacts_dir).string();
    options.random = [] {
      static std::random_device device;
      return device();
    };
    ASSIGN_OR_RETURN(dispatcher_, Dispatcher::Create(std::move(options)));
    return absl::OkStatus();
  }

  absl::Status StartServers() {
    if (!options_.http_address.empty()) {
      PageSources sources;
      sources.metrics = [this] { return metrics_.ToText(); };
      sources.status = [this] { return StatusPage(); };
      sources.status_json = [this] { return StatusJson(); };
      sources.health = [this] { return Health(); };
      sources.readiness = [this] { return Readiness(); };
      monitoring::HttpServer::Options http;
      http.address = options_.http_address;
      http.pages = MakePages(sources);
      ASSIGN_OR_RETURN(http_server_,
                       monitoring::HttpServer::Start(std::move(http)));
    }
    GrpcServer::Options grpc;
    grpc.listen_address = options_.listen_address;
    grpc.dispatcher = dispatcher_.get();
    grpc.compiler = &compiler_;
    grpc.version = kVersion;
    grpc.http_address = AdvertisedAddress(http_address());
    ASSIGN_OR_RETURN(grpc_server_, GrpcServer::Start(grpc));
    return absl::OkStatus();
  }

  absl::Status Health() const {
    if (!is_serving_) return absl::UnavailableError("shutting down");
    if (!dispatcher_->IsStuck()) return absl::OkStatus();
    return absl::UnavailableError("the dispatcher is stuck");
  }

  // Whether clients and workers can call.
  absl::Status Readiness() const {
    if (!has_started_) return absl::UnavailableError("starting");
    if (!is_serving_) return absl::UnavailableError("shutting down");
    if (dispatcher_->IsAnswering()) return absl::OkStatus();
    return absl::UnavailableError("the dispatcher does not answer");
  }

  v1::GetClusterInfoResponse ClusterInfo() const {
    v1::GetClusterInfoResponse cluster = dispatcher_->ClusterInfo();
    cluster.set_version(kVersion);
    return cluster;
  }
  v1::ListJobsResponse LatestJobs() const {
    const absl::StatusOr<v1::ListJobsResponse> jobs =
        dispatcher_->List(v1::ListJobsRequest());
    return jobs.ok() ? *jobs : v1::ListJobsResponse();
  }
  std::string StatusPage() const {
    return MakeStatusPage(ClusterInfo(), dispatcher_->ListWorkers(),
                          LatestJobs());
  }
  absl::StatusOr<std::string> StatusJson() const {
    return MakeStatusJson(ClusterInfo(), dispatcher_->ListWorkers(),
                          LatestJobs());
  }

  // {"grpc": "127.0.0.1:7070", "http": "127.0.0.1:7071", "pid": 4711}
  absl::Status WritePortFile() {
    if (options_.port_file.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(auto file, AtomicFile::Create(options_.port_file));
    RETURN_IF_ERROR(file->Append(
        absl::StrCat("{\"grpc\": \"", grpc_address(), "\", \"http\": \"",
                     http_address(), "\", \"pid\": ", getpid(), "}\n")));
    return file->Commit();
  }

  // In the order they are made; each uses only those above it.
  const Options options_;
  std::atomic<bool> is_serving_{true};
  std::atomic<bool> has_started_{false};
  const ScheduleCompiler compiler_;
  Metrics metrics_{kVersion, RealClock()};
  JobRecords records_{{&RealClock(), [this] { metrics_.CountRecordError(); }}};
  JobObservers observers_{{&metrics_, &records_}};
  std::unique_ptr<SqliteStore> store_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<monitoring::HttpServer> http_server_;
  std::unique_ptr<GrpcServer> grpc_server_;
  std::unique_ptr<Ticker> compile_ticker_;
  std::unique_ptr<Ticker> ticker_;
  std::unique_ptr<Ticker> health_ticker_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(Options options) {
  auto daemon = std::make_unique<DaemonImpl>(std::move(options));
  RETURN_IF_ERROR(daemon->Start());
  return daemon;
}

}  // namespace weft::coordinator
