#include "worker/supervise.h"

#include <unistd.h>

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "worker/service/device_counter.h"
#include "worker/service/flag_rules.h"
#include "worker/service/health_server.h"
#include "worker/service/pulse.h"

namespace weft::service {
namespace {

constexpr int kMaxChildren = 256;
// Beyond the grace of a child, which ends by itself when its own is over.
constexpr absl::Duration kGraceMargin = absl::Seconds(1);

absl::StatusOr<int> CountChildren(const SuperviseOptions& options,
                                  std::optional<int> there) {
  if (options.devices == "all") {
    if (there.has_value() && *there > 0) return *there;
    return absl::InvalidArgumentError(
        there.has_value()
            ? absl::StrCat("--devices=all: this machine has no device of kind ",
                           options.device)
            : absl::StrCat("--devices=all: any number of workers shares a "
                           "device of kind ",
                           options.device, "; say how many"));
  }
  int number = 0;
  if (!absl::SimpleAtoi(options.devices, &number) || number < 1 ||
      number > kMaxChildren) {
    return absl::InvalidArgumentError(
        absl::StrCat("--devices=", options.devices,
                     " is neither all nor a number from 1 to ", kMaxChildren));
  }
  if (there.has_value() && number > *there) {
    return absl::InvalidArgumentError(
        absl::StrCat("--devices=", number, ": this machine has ", *there,
                     " devices of kind ", options.device));
  }
  return number;
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

// That of child `index`.
absl::StatusOr<std::string> HttpAddress(const std::string& first, int index) {
  const size_t colon = first.rfind(':');
  int port = 0;
  if (first.empty() || !absl::SimpleAtoi(first.substr(colon + 1), &port) ||
      port == 0) {
    return first;
  }
  if (port + index > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("--http_address=", first, " leaves no port for child ",
                     index, "; ports end at 65535"));
  }
  return absl::StrCat(first.substr(0, colon + 1), port + index);
}

}  // namespace

absl::StatusOr<std::vector<Supervisor::Command>> ChildCommands(
    const SuperviseOptions& options, std::optional<int> there,
    const std::string& program, const std::vector<std::string>& arguments) {
  if (absl::StrContains(options.device, ':')) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=", options.device,
                     " names one device; with --devices it is a kind"));
  }
  ASSIGN_OR_RETURN(const int children, CountChildren(options, there));
  const std::string host =
      options.worker_id.empty() ? HostName() : options.worker_id;
  std::vector<Supervisor::Command> commands;
  for (int i = 0; i < children; ++i) {
    const std::string id = absl::StrCat(host, "-", i);
    RETURN_IF_ERROR(CheckWorkerId(id));
    ASSIGN_OR_RETURN(const std::string http,
                     HttpAddress(options.http_address, i));
    Supervisor::Command command = {id, {program}};
    std::vector<std::string>& words = command.arguments;
    words.insert(words.end(), arguments.begin(), arguments.end());
    // The last value of a flag counts.
    words.push_back("--devices=");
    words.push_back("--health_address=");
    words.push_back("--supervised");
    words.push_back("--worker_id=" + id);
    words.push_back("--http_address=" + http);
    words.push_back(
        absl::StrCat("--device=", options.device,
                     there.has_value() ? absl::StrCat(":", i) : ""));
    commands.push_back(std::move(command));
  }
  return commands;
}

absl::StatusOr<int> Supervise(const SuperviseOptions& options,
                              const std::string& program,
                              const std::vector<std::string>& arguments) {
  DeviceCounter counter(*options.backend);  // first: it forks
  Pulse pulse(RealClock());
  std::unique_ptr<HealthServer> health;
  if (!options.health_address.empty()) {
    HealthServer::Options serve;
    serve.address = options.health_address;
    serve.pulse = &pulse;
    ASSIGN_OR_RETURN(health, HealthServer::Start(serve));
    LOG(INFO) << "health=" << health->address();
  }
  const absl::StatusOr<std::optional<int>> there =
      counter.Wait([&] { pulse.Beat(); });
  if (absl::IsCancelled(there.status())) return 0;
  RETURN_IF_ERROR(there.status());
  Supervisor::Options supervise;
  ASSIGN_OR_RETURN(supervise.commands,
                   ChildCommands(options, *there, program, arguments));
  supervise.grace = options.grace + kGraceMargin;
  supervise.on_turn = [&](const Health& common) {
    pulse.Beat();
    if (health != nullptr) health->Set(common);
  };
  return Supervisor(std::move(supervise)).Run();
}

}  // namespace weft::service
