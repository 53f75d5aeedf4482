#include "client/session.h"

#include <filesystem>
#include <system_error>

#include "client/address.h"
#include "client/message_text.h"
#include "client/report.h"

namespace weft::client {

std::unique_ptr<CoordinatorClient> Connect(const Session& session,
                                           ExitCode* exit_code) {
  std::error_code error;
  const auto address = FindCoordinator(
      session.coordinator_flag, std::filesystem::current_path(error).string());
  if (!address.ok()) {
    ReportError(session.err, address.status());
    *exit_code = kExitUsage;
    return nullptr;
  }
  CoordinatorClient::Options options;
  options.address = *address;
  return CoordinatorClient::Create(options);
}

void PrintMessage(const Session& session,
                  const google::protobuf::Message& message) {
  session.out << (session.format == Format::kJson ? ToJson(message)
                                                  : ToYaml(message));
}

bool IsForScripts(Format format) {
  return format == Format::kJson || format == Format::kYaml;
}

}  // namespace weft::client
